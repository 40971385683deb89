"""Faults between real brokers and a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from echoless.broker.config.internal_topics import CONSUMER_OFFSETS
from echoless.protocol.state_records.partitioner import partition_of
from echoless.testkit.admin import Admin
from echoless.testkit.faults import Faults
from tests.support.cluster import Cluster, get_json

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

TOPIC = "orders"
SETTINGS = {"replica_lag_time_max_ms": "1500", "zookeeper_session_timeout_ms": "4000"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers, and a topic on both."""
    with Cluster(tmp_path_factory.mktemp("cluster"), SETTINGS, brokers=2) as cluster:
        cluster.start()
        cluster.create_topic(TOPIC, 1, replicas=2)
        yield cluster


def faults_of(cluster: Cluster, broker_id: int) -> Faults:
    return Faults(Admin(cluster.brokers[broker_id].admin_address))


def isr(cluster: Cluster, place: tuple[str, int] = (TOPIC, 0)) -> set[int]:
    """The in-sync replicas; none without a leader."""
    row = cluster.leader_rows().get(place)
    return set() if row is None else set(row.isr)


def leader_epoch(cluster: Cluster) -> int:
    """The leader epoch; -1 without a leader."""
    row = cluster.leader_rows().get((TOPIC, 0))
    return -1 if row is None else row.leader_epoch


def send(cluster: Cluster, value: str) -> None:
    """One record, acknowledged by all replicas in sync."""
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    producer.produce(TOPIC, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_cut_link_takes_the_follower_out_of_the_isr(cluster: Cluster, side: str) -> None:
    """Whichever end the rule is on; when it goes the follower catches up."""
    cluster.wait_until(lambda: isr(cluster) == {1, 2}, "both are in sync")
    leader = cluster.wait_for_leader(TOPIC, 0)
    follower = 3 - leader
    here, there = (leader, follower) if side == "leader" else (follower, leader)
    cut = {"type": "cut_replica_link", "broker_id": there}
    with faults_of(cluster, here).rule(cut) as rule:
        send(cluster, "alone")  # acknowledged when the follower, which does not get it, is out
        assert isr(cluster) == {leader}
        assert rule.hits > 0
    cluster.wait_until(lambda: isr(cluster) == {1, 2}, "both are in sync again")
    assert cluster.wait_for_leader(TOPIC, 0) == leader


def test_a_member_whose_session_expires_goes_on_under_a_new_one(cluster: Cluster) -> None:
    """It loses what it led, registers again, and is in sync again."""
    cluster.wait_until(lambda: isr(cluster) == {1, 2}, "both are in sync")
    leader = cluster.wait_for_leader(TOPIC, 0)
    epoch = leader_epoch(cluster)
    rule = faults_of(cluster, leader).add("expire_session")
    assert (rule.hits, rule.document()["exhausted"]) == (1, True)
    cluster.wait_until(lambda: leader_epoch(cluster) > epoch, "somebody leads in a later epoch")
    cluster.wait_until(lambda: isr(cluster) == {1, 2}, "both are in sync again")
    send(cluster, "after")
    assert cluster.brokers[leader].process.is_running
    faults = get_json(cluster.brokers[leader].admin_address, "/decisions?n=10")["faults"]
    assert [one["action"] for one in faults][:1] == ["expire_session"]


def test_a_moved_coordinator_knows_the_group(cluster: Cluster) -> None:
    """Another replica of the offsets partition leads from now on; the member goes on where it committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "moved",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
        }
    )
    send(cluster, "before")
    consumer.subscribe([TOPIC])
    cluster.wait_until(lambda: consumer.poll(0.5) is not None, "a record is read")
    (one,) = consumer.commit(asynchronous=False)
    at = one.offset
    partition = partition_of("moved", 8)
    place = (CONSUMER_OFFSETS, partition)
    cluster.wait_until(lambda: isr(cluster, place) == {1, 2}, "both hold it")
    before = cluster.wait_for_leader(CONSUMER_OFFSETS, partition)
    faults_of(cluster, before).add({"type": "move_coordinator", "group": "moved"})
    after = 3 - before
    cluster.wait_until(lambda: cluster.leader(CONSUMER_OFFSETS, partition) == after, "it has moved")
    cluster.wait_until(lambda: committed(consumer) == at, "what was committed is read back")
    consumer.close()


def committed(consumer: Consumer) -> int | None:
    """The committed offset; None while the consumer asks the former coordinator."""
    try:
        (found,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=10)
    except KafkaException:
        return None
    return int(found.offset)
