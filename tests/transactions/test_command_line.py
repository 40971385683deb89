"""`echoless transactions` on three brokers, each of which coordinates some of the ids."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from tests.cli.command import Command
from tests.transactions.librdkafka import read_until, send, transactional
from tests.transactions.test_librdkafka import running_cluster

pytestmark = pytest.mark.slow


def test_one_of_several_producers_is_aborted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids of all brokers are listed; the others commit, and nothing of the aborted one is read."""
    echoless, names = Command(capsys), [f"p{number}" for number in range(6)]
    with running_cluster(tmp_path) as cluster:
        monkeypatch.setenv("ECHOLESS_BOOTSTRAP_SERVER", cluster.bootstrap)
        producers = {name: transactional(cluster.bootstrap, name) for name in names}
        for name, producer in producers.items():
            producer.begin_transaction()
            send(producer, [f"{name}-{number}" for number in range(3)])
        listed = echoless("transactions", "list", "--longer-than", 0, "--json").json
        assert [one["transactional_id"] for one in listed] == names
        assert len({one["coordinator"] for one in listed}) > 1
        done = echoless("transactions", "abort", "p1")
        assert done.code == 0, done.err
        with pytest.raises(KafkaException) as fenced:
            producers.pop("p1").commit_transaction()
        assert fenced.value.args[0].fatal()
        for producer in producers.values():
            producer.commit_transaction()
        read_until(cluster.bootstrap, [f"{name}-{one}" for name in producers for one in range(3)])
        wanted = {**dict.fromkeys(names, "CompleteCommit"), "p1": "CompleteAbort"}

        def are_complete() -> bool:
            listed = echoless("transactions", "list", "--json").json
            return {one["transactional_id"]: one["state"] for one in listed} == wanted

        cluster.wait_until(are_complete, "every end is stored: readers see the markers before")
