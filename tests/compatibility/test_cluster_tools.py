"""Apache Kafka's administration tools against a cluster of four brokers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compatibility.kafka_tools import run_tool
from tests.support.cluster import Cluster
from tests.toolchain import require

_TOPICS = "org.apache.kafka.tools.TopicCommand"
_REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_ELECT = "org.apache.kafka.tools.LeaderElectionCommand"

pytestmark = [pytest.mark.cluster, pytest.mark.clients, pytest.mark.kafka, pytest.mark.slow]


def test_replicas_move_and_leaders_follow(tmp_path: Path) -> None:
    """A reassignment started by Kafka's tool is verified by it, and preferred leaders are elected."""
    require("kafka")
    with Cluster(tmp_path, brokers=4) as cluster:
        cluster.start()
        server = ("--bootstrap-server", cluster.bootstrap)
        assignment = ("--replica-assignment", "1:2:3,2:3:1")
        run_tool(_TOPICS, *server, "--create", "--topic", "moved", *assignment)
        plan = tmp_path / "plan.json"
        rows = [
            {"topic": "moved", "partition": 0, "replicas": [4, 2, 3]},
            {"topic": "moved", "partition": 1, "replicas": [3, 4, 2]},
        ]
        plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        wanted = ("--reassignment-json-file", str(plan))
        run_tool(_REASSIGN, *server, *wanted, "--execute")
        cluster.wait_until(
            lambda: (
                "moved-0 is completed"
                in (said := run_tool(_REASSIGN, *server, *wanted, "--verify"))
                and "moved-1 is completed" in said
            )
        )
        everything = ("--election-type", "preferred", "--all-topic-partitions")
        run_tool(_ELECT, *server, *everything)
        cluster.wait_until(
            lambda: [cluster.leader("moved", partition) for partition in (0, 1)] == [4, 3],
            "the preferred leaders lead",
        )
        described = run_tool(_TOPICS, *server, "--describe", "--under-replicated-partitions")
        assert described.strip() == ""
