"""A broker that gets SIGTERM hands over first: clients see a short pause and no error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.support.cluster import Cluster
from tests.support.queued_time import ProcessWatch
from tests.support.steady_producer import SteadyProducer

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

TOPIC = "restarted"
EXIT_WITHIN_S = 5.0
_RECORDS_BETWEEN = 500


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as cluster:
        cluster.start()
        cluster.create_topic(TOPIC, 1, min_insync_replicas=2)
        yield cluster


@pytest.fixture
def tree(cluster: Cluster) -> Iterator[KazooClient]:
    """The nodes in ZooKeeper; transaction ids show their order."""
    client = KazooClient(cluster.zookeeper.hosts("/echoless"))
    client.start()
    yield client
    client.stop()
    client.close()


def _wait_for_records(cluster: Cluster, producer: SteadyProducer) -> None:
    goal = len(producer.acknowledged_at) + _RECORDS_BETWEEN
    cluster.wait_until(lambda: len(producer.acknowledged_at) >= goal, "records are acknowledged")


def test_every_leader_is_restarted_under_load(cluster: Cluster, tree: KazooClient) -> None:
    """No record fails; the next leader is written before the old one is gone; exit 0 in time."""
    silences_ms: list[int] = []
    with SteadyProducer(cluster.bootstrap, TOPIC, records_per_s=1000) as producer:
        for _ in cluster.brokers:
            _wait_for_records(cluster, producer)
            leader = cluster.wait_for_leader(TOPIC, 0)
            began = time.time()
            with ProcessWatch(cluster.brokers[leader].process.pid) as watch:
                assert cluster.stop(leader) == 0
            assert watch.net_s < EXIT_WITHIN_S
            _, registrations = tree.get("/brokers/ids")
            _, state = tree.get(f"/brokers/topics/{TOPIC}/partitions/0/state")
            assert state.mzxid < registrations.pzxid, "it left before it had handed over"
            assert str(leader) not in tree.get_children("/brokers/ids")
            _wait_for_records(cluster, producer)
            before, after = producer.longest_silence_after(began)
            silences_ms.append(round(1000 * (after - before)))
            cluster.start_broker(leader)
            cluster.wait_until(cluster.is_in_sync, "every replica is in sync")
    print(f"longest time without an acknowledgement at each stop: {silences_ms} ms")
    assert producer.failures == []
