"""Offsets of groups in the target: from batches that were written, forward only, and not while somebody reads there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient, NewTopic

from echoless.broker.faults.reading_rules import read_rules
from echoless.client.security import NO_SECURITY
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.mirror.group_offsets import ClusterGroups, GroupCommit
from echoless.pipeline.mirror.group_sync import GroupSync, SyncedCluster
from tests.pipeline.exactly_once.broker_thread import BrokerThread

ORDERS = TopicPartition("orders", 0)
COPY = TopicPartition("west.orders", 0)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[BrokerThread, BrokerThread]]:
    """Two brokers, with the topic and its copy."""
    few = {"offsets_topic_num_partitions": 1}  # created by the first request for a group
    with (
        BrokerThread(tmp_path / "source", **few) as source,
        BrokerThread(tmp_path / "target", **few) as target,
    ):
        source.create("orders", 1)
        target.create("west.orders", 1)
        yield source, target


@pytest.fixture
def clusters(brokers: tuple[BrokerThread, BrokerThread]) -> tuple[str, str]:
    source, target = brokers
    return source.address, target.address


def sync_between(clusters: tuple[str, str], now: list[float] | None = None) -> GroupSync:
    source, target = (SyncedCluster(servers=one, security=NO_SECURITY) for one in clusters)
    clock = now or [0.0]
    return GroupSync(
        source=source,
        target=target,
        name="m",
        pattern="app-.*",
        prefix="west.",
        interval_s=60,
        clock_s=lambda: clock[0],
    )


def produce(address: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": address})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(30) == 0


def commit(address: str, group: str, one: TopicPartition, offset: int) -> None:
    with ClusterGroups(address) as groups:
        groups.commit(group, {one: GroupCommit(offset)})


def committed(address: str, group: str) -> dict[TopicPartition, int]:
    with ClusterGroups(address) as groups:
        return {one: found.offset for one, found in groups.committed(group).items()}


def copy_batch(sync: GroupSync, clusters: tuple[str, str], count: int, reached: int) -> None:
    """A batch of the mirror: records in the target, and the end that it reached in the source."""
    produce(clusters[1], "west.orders", count)
    sync.note_batch({"orders": {0: reached}}, lambda: True)


def test_groups_are_moved_to_what_was_mirrored_and_never_further(clusters: tuple[str, str]):
    """Between two batches to the end of the first one; below all to the beginning; ahead of all to the end."""
    sync = sync_between(clusters)
    copy_batch(sync, clusters, 10, reached=15)
    copy_batch(sync, clusters, 5, reached=22)
    for group, offset in (("app-at", 22), ("app-between", 19), ("app-below", 3), ("app-far", 90)):
        commit(clusters[0], group, ORDERS, offset)
    commit(clusters[0], "other", ORDERS, 22)
    sync.sync()
    assert committed(clusters[1], "app-at") == {COPY: 15}
    assert committed(clusters[1], "app-between") == {COPY: 10}
    assert committed(clusters[1], "app-below") == {COPY: 0}
    assert committed(clusters[1], "app-far") == {COPY: 15}
    assert committed(clusters[1], "other") == {}, "its name does not match"


def test_a_batch_that_another_driver_has_followed_makes_no_pair(clusters: tuple[str, str]):
    """Its end may already be behind records of the next one."""
    sync = sync_between(clusters)
    copy_batch(sync, clusters, 10, reached=10)
    produce(clusters[1], "west.orders", 7)
    sync.note_batch({"orders": {0: 12}}, lambda: False)
    commit(clusters[0], "app", ORDERS, 12)
    commit(clusters[0], "app-1", ORDERS, 12)
    assert sync.sync() == {"app-1": {COPY: 10}}


def test_a_group_moves_forward_only_and_not_under_its_members(clusters: tuple[str, str]):
    """A consumer that has failed over goes its own way; one that is gone is where it was."""
    now = [100.0]
    sync = sync_between(clusters, now)
    copy_batch(sync, clusters, 10, reached=10)
    commit(clusters[0], "app-1", ORDERS, 10)
    commit(clusters[1], "app-1", COPY, 12)
    assert sync.sync() == {}, "it is ahead there"
    commit(clusters[0], "app-2", ORDERS, 10)
    consumer = Consumer({"bootstrap.servers": clusters[1], "group.id": "app-2"})
    consumer.subscribe(["west.orders"])
    while not consumer.assignment():
        consumer.poll(0.1)
    assert sync.sync() == {}, "it has a member"
    consumer.close()
    assert sync.sync() == {"app-2": {COPY: 10}}
    assert sync.sync() == {}, "nothing has changed"
    now[0] += 7 * 3600
    assert sync.sync() == {"app-2": {COPY: 10}}, "or it would be forgotten one day"


def test_a_mirror_that_starts_again_knows_the_pairs(clusters: tuple[str, str]):
    """They are in a group of the target, which no mirror takes for one of its own."""
    first = sync_between(clusters)
    for number in range(1, 4):
        copy_batch(first, clusters, 5, reached=6 * number)
    again = sync_between(clusters)
    commit(clusters[0], "app-1", ORDERS, 13)
    assert again.sync() == {"app-1": {COPY: 10}}
    assert again.own_group == "echoless-mirror.m"
    back = sync_between((clusters[1], clusters[0]))
    back.pattern = ".*"
    back.prefix = ""
    assert back.sync() == {}


def test_a_consumer_continues_in_the_target(clusters: tuple[str, str]):
    """Nothing is skipped, and nothing is read again if everything was mirrored."""
    sync = sync_between(clusters)
    copy_batch(sync, clusters, 10, reached=10)
    commit(clusters[0], "app-1", ORDERS, 10)
    sync.sync()
    produce(clusters[1], "west.orders", 3)
    consumer = Consumer({"bootstrap.servers": clusters[1], "group.id": "app-1"})
    (found,) = consumer.committed([Assigned("west.orders", 0)], timeout=30)
    assert found.offset == 10
    consumer.assign([found])
    read = []
    while len(read) < 3:
        message = consumer.poll(1.0)
        if message is not None:
            assert message.error() is None
            read.append(message.offset())
    consumer.close()
    assert read == [10, 11, 12]


def test_a_group_that_was_reset_in_the_source_is_moved_back(clusters: tuple[str, str]):
    """It has to read again what it was reset to; one that has gone on in the target stays where it is."""
    first = sync_between(clusters)
    copy_batch(first, clusters, 10, reached=10)
    copy_batch(first, clusters, 10, reached=20)
    for group in ("app-1", "app-2"):
        commit(clusters[0], group, ORDERS, 20)
    first.sync()
    commit(clusters[1], "app-2", COPY, 20)  # of its own
    for group in ("app-1", "app-2"):
        commit(clusters[0], group, ORDERS, 12)
    again = sync_between(clusters)
    assert again.sync() == {"app-1": {COPY: 10}}
    assert committed(clusters[1], "app-2") == {COPY: 20}
    assert again.sync() == {}


def test_partitions_without_records_in_the_batch_have_pairs(clusters: tuple[str, str]):
    """A partition that is empty, or idle since groups are translated, is one where its groups fail over, too."""
    for address, prefix in zip(clusters, ("", "west."), strict=True):
        admin = AdminClient({"bootstrap.servers": address})
        for one in admin.create_topics(
            [NewTopic(f"{prefix}{name}", 1, 1) for name in ("idle", "empty")]
        ).values():
            one.result()
    produce(clusters[1], "west.idle", 7)
    sync = sync_between(clusters)
    produce(clusters[1], "west.orders", 5)
    sync.note_batch({"orders": {0: 6}, "idle": {0: 9}, "empty": {0: 0}}, lambda: True)
    idle, empty = TopicPartition("idle", 0), TopicPartition("empty", 0)
    commit(clusters[0], "app-1", idle, 9)
    commit(clusters[0], "app-1", empty, 0)
    there = {TopicPartition("west.idle", 0): 7, TopicPartition("west.empty", 0): 0}
    assert sync.sync() == {"app-1": there}


def test_a_refused_group_does_not_stop_the_others(brokers: tuple[BrokerThread, BrokerThread]):
    """Rights are given group by group."""
    source, target = clusters = brokers[0].address, brokers[1].address
    sync = sync_between(clusters)
    copy_batch(sync, clusters, 10, reached=10)
    for group in ("app-1", "app-2", "app-3", "app-4"):
        commit(source, group, ORDERS, 10)
    refuse = {"type": "error", "code": "GROUP_AUTHORIZATION_FAILED"}
    for broker, group in zip(brokers, ("app-1", "app-3"), strict=True):
        rule = {"match": {"api": "offset_fetch", "group": group}, "action": refuse}
        broker.call_soon(broker.running.broker.faults.add, read_rules([rule]))
    assert sync.sync() == {"app-2": {COPY: 10}, "app-4": {COPY: 10}}
    assert committed(target, "app-4") == {COPY: 10}


def test_idle_groups_cost_no_requests(brokers: tuple[BrokerThread, BrokerThread]):
    """A round asks for all groups at once, and the target for those that have moved."""
    clusters = brokers[0].address, brokers[1].address
    sync = sync_between(clusters)
    copy_batch(sync, clusters, 10, reached=10)
    requests: list[list[int]] = []
    for count in (1, 60):
        for number in range(count):
            commit(clusters[0], f"app-{number}", ORDERS, 10)
        sync.sync()
        before = [sum(one.running.broker.metrics.requests.values()) for one in brokers]
        assert sync.sync() == {}
        after = [sum(one.running.broker.metrics.requests.values()) for one in brokers]
        requests.append([b - a for a, b in zip(before, after, strict=True)])
    assert requests[0] == requests[1]
    copy_batch(sync, clusters, 5, reached=15)
    commit(clusters[0], "app-7", ORDERS, 15)
    assert sync.sync() == {"app-7": {COPY: 15}}
