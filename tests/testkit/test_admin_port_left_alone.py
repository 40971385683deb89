"""A test that asks nothing of the admin port: its broker answers nothing there, which would take longer than its start."""

from __future__ import annotations

from pathlib import Path

import pytest

from echoless.client.connection import BrokerConnection
from echoless.testkit.admin import Admin, AdminError
from echoless.testkit.echoless import Echoless

_VALUES = [b"one", b"two", b"three"]


def _serves_http(echoless: Echoless) -> bool:
    process = echoless.broker._process
    assert process is not None
    return "aiohttp" in Path(f"/proc/{process.pid}/maps").read_text()


def _store(echoless: Echoless, topic: str) -> None:
    batch = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
    records = [{"value": one} for one in _VALUES]
    echoless.native.call("produce", topic=topic, partition=0, **batch, records=records)


@pytest.mark.slow
def test_records_are_compared_without_it() -> None:
    """And no rule is looked for where nobody can have set one."""
    with Echoless() as echoless:
        topic = echoless.topic(partitions=2)
        _store(echoless, topic)
        echoless.assert_exactly_once(topic, _VALUES)
        assert echoless.records("none") == []
        echoless.assert_faults_struck()
        assert not _serves_http(echoless)
        assert echoless.faults.rules() == []
        assert _serves_http(echoless)


@pytest.mark.slow
def test_a_rule_that_was_set_by_its_address_is_judged() -> None:
    """As a client in another language does it."""
    with Echoless() as echoless:
        rule = {"match": {"api": "produce"}, "action": "drop_response"}
        Admin(echoless.broker.admin).post("/faults", rule)
        with pytest.raises(AssertionError, match="never struck"):
            echoless.assert_faults_struck()


@pytest.mark.slow
def test_a_rule_of_the_start_is_judged(tmp_path: Path) -> None:
    """Nobody needs the address for it."""
    rules = tmp_path / "rules.json"
    rules.write_text('{"rules": [{"match": {"api": "produce"}, "action": "drop_response"}]}')
    with (
        Echoless({"faults": str(rules)}) as echoless,
        pytest.raises(AssertionError, match="never struck"),
    ):
        echoless.assert_faults_struck()


@pytest.mark.slow
def test_rules_of_a_broker_that_answers_otherwise_are_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A verdict needs an answer while the broker runs; one that was killed has none."""
    with Echoless() as echoless:
        echoless.faults.add("drop_response", match={"api": "produce"})
        with monkeypatch.context() as patch:
            patch.setattr("echoless.testkit.faults.Admin.get", _refuse)
            with pytest.raises(AdminError, match="refused"):
                echoless.assert_faults_struck()
            echoless.broker.kill()
            echoless.assert_faults_struck()


def _refuse(admin: Admin, path: str, **_: object) -> None:
    raise AdminError(admin.url(path), "refused", 503)


@pytest.mark.slow
def test_a_log_that_begins_later_is_read() -> None:
    """The admin port knows its first offset."""
    with Echoless() as echoless:
        topic = echoless.topic()
        _store(echoless, topic)
        host, _, port = echoless.bootstrap_servers.rpartition(":")
        rows = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 2}]}]
        with BrokerConnection.open(host, int(port)) as connection:
            connection.request("delete_records", {"topics": rows, "timeout": 5000})
        assert [one.value for one in echoless.records(topic)] == _VALUES[2:]
