"""Coordinators that are killed, in a cluster of three brokers on a real ZooKeeper."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from echoless.broker.config.internal_topics import CONSUMER_OFFSETS
from echoless.protocol.state_records.partitioner import partition_of
from tests.support.cluster import Cluster

pytestmark = pytest.mark.cluster

GROUP = "billing"
RECORDS = 90
PARTITIONS = 2
_PATIENCE_S = 90.0


def consumer_of(cluster: Cluster) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
        }
    )


def note(seen: set[int], message: Message | None) -> None:
    """Adds what a poll returned."""
    if message is not None and message.error() is None:
        seen.add(int(message.value()))


def commit(consumer: Consumer, seen: set[int]) -> dict[int, int]:
    """Commits what was read, however often it has to be asked for; returns the positions that were new.

    A poll between two attempts may return one more record, whose position the next attempt commits.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            committed = consumer.commit(asynchronous=False)
        except KafkaException:
            assert time.monotonic() < deadline, "no commit succeeds any more"
            note(seen, consumer.poll(0.1))
        else:
            assert [one.error for one in committed] == [None] * len(committed)
            return {one.partition: one.offset for one in committed if one.offset >= 0}


def test_a_commit_that_was_answered_is_read_back_from_every_later_coordinator(
    tmp_path: Path,
) -> None:
    """H2: a member reads, commits, and its coordinator is killed, again and again; it goes on as the same member."""
    with Cluster(tmp_path, {"min_insync_replicas": "2"}) as cluster:
        cluster.start()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic("t", PARTITIONS, 3)
        admin.create_topics([topic])["t"].result(timeout=_PATIENCE_S)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for number in range(RECORDS):
            producer.produce("t", str(number), partition=number % PARTITIONS)
        assert producer.flush(_PATIENCE_S) == 0
        consumer = consumer_of(cluster)
        consumer.subscribe(["t"])
        seen: set[int] = set()
        positions: dict[int, int] = {}
        index = partition_of(GROUP, 8)
        for limit in (RECORDS // 2, RECORDS):
            deadline = time.monotonic() + _PATIENCE_S
            while len(seen) < limit and time.monotonic() < deadline:
                note(seen, consumer.poll(0.5))
            assert len(seen) == limit
            positions |= commit(consumer, seen)
            coordinator = cluster.wait_for_leader(CONSUMER_OFFSETS, index)
            cluster.kill(coordinator)
            other = consumer_of(cluster)
            wanted = [TopicPartition("t", partition) for partition in positions]
            found = other.committed(wanted, timeout=_PATIENCE_S)
            assert {one.partition: one.offset for one in found} == positions
            other.close()
            cluster.wait_for_leader(CONSUMER_OFFSETS, index, other_than=coordinator)
            cluster.start_broker(coordinator)
            cluster.wait_until(cluster.is_in_sync)
        consumer.close()
        assert seen == set(range(RECORDS))


def test_the_topic_of_the_groups_gets_more_replicas_with_more_brokers(tmp_path: Path) -> None:
    """Created by the first broker alone, it survives that broker once there are others."""
    with Cluster(tmp_path, brokers=2) as cluster:
        cluster.zookeeper.start()
        cluster.start_broker(1)
        first = Consumer({"bootstrap.servers": cluster.brokers[1].kafka_address, "group.id": GROUP})
        admin = AdminClient({"bootstrap.servers": cluster.brokers[1].kafka_address})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(timeout=_PATIENCE_S)
        first.commit(offsets=[TopicPartition("t", 0, 42)], asynchronous=False)
        cluster.start_broker(2)
        cluster.wait_until(
            lambda: (
                {row.isr for row in cluster.rows_if_any(1) if row.topic == CONSUMER_OFFSETS}
                == {frozenset({1, 2})}
            )
        )
        cluster.kill(1)
        second = Consumer(
            {"bootstrap.servers": cluster.brokers[2].kafka_address, "group.id": GROUP}
        )
        found = second.committed([TopicPartition("t", 0)], timeout=_PATIENCE_S)
        assert [one.offset for one in found] == [42]
        first.close()
        second.close()
