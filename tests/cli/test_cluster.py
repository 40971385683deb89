"""The commands for operating a cluster, against four real brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.support.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_a_lost_machine_is_replaced(
    tmp_path: Path, echoless: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another broker takes its place in every assignment, and the preferred leaders lead again."""
    with Cluster(tmp_path, {"zookeeper_session_timeout_ms": "6000"}, brokers=4) as cluster:
        cluster.start()
        monkeypatch.setenv("ECHOLESS_BOOTSTRAP_SERVER", cluster.bootstrap)
        cluster.create_topic("orders", 4)
        lost = cluster.wait_for_leader("orders", 0)
        assignments = _assignments(echoless)
        (spare,) = {1, 2, 3, 4} - set(assignments[0])
        cluster.kill(lost)
        cluster.wait_for_leader("orders", 0, other_than=lost)
        moved = [
            p for p, replicas in assignments.items() if lost in replicas and spare not in replicas
        ]
        options = [text for partition in moved for text in ("--partition", partition)]
        ran = echoless("topics", "reassign", "orders", "--replace", f"{lost}={spare}", *options)
        assert ran.code == 0, ran.err
        cluster.wait_until(lambda: echoless("topics", "reassign", "--json").json == [])
        after = _assignments(echoless)
        for partition in moved:
            assert after[partition] == [spare if r == lost else r for r in assignments[partition]]
        elected = echoless("topics", "elect-leaders", "orders", "--partition", 0)
        assert elected.code == 0, elected.err
        # The election was answered by one broker; the others follow the tree by themselves.
        cluster.wait_until(lambda: cluster.leader("orders", 0) == spare)


def _assignments(echoless: Command) -> dict[int, list[int]]:
    (topic,) = echoless("topics", "describe", "orders", "--json").json
    assert topic in echoless("topics", "describe", "--json").json, "without a name: all"
    return {one["partition"]: one["replicas"] for one in topic["partitions"]}
