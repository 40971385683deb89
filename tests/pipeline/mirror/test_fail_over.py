"""Groups of real clients that go on in the target after their cluster was killed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient, NewTopic

from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.mirror.group_offsets import ClusterGroups
from echoless.testkit.admin import Admin
from echoless.testkit.faults import Faults
from tests.compatibility.programs import JAVA, LIBRDKAFKA
from tests.group_members.events import Read
from tests.group_members.members import Kind, Member
from tests.pipeline.pipeline_process import PipelineProcess
from tests.pipeline.stored_records import count_stored, stored_records
from tests.support.echoless import Echoless
from tests.toolchain import require

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.clients]

PARTITIONS = 3
RECORDS, LATER = 1800, 180
BATCH_RECORDS = 900
SESSION_MS = 60_000
"""Session that outlasts a stall: a member that is put out of its group reads again from what it has committed."""
_READ_S = 300
"""Four clients start at once, three of them in Java."""
ABORTED = 10**9
"""Numbers of records that were aborted begin here."""
JAVA_3, JAVA_4 = JAVA
CLIENTS = {
    "at-end": Kind(LIBRDKAFKA, "range"),
    "behind": Kind(JAVA_3, "cooperative-sticky"),
    "partly": Kind(JAVA_4, "range"),
    "ahead": Kind(JAVA_4, "", protocol="consumer"),
}
"""The groups, and what their consumers are in the target."""


class Clusters(NamedTuple):
    source: Echoless
    target: Echoless


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Clusters]:
    """Two brokers in processes of their own; the source has a topic with gaps, and an empty one."""
    require("java", "spark-kafka")
    both = Clusters(Echoless(tmp_path / "source"), Echoless(tmp_path / "target"))
    for one in both:
        one.start()
    create_topics(both.source.kafka_address)
    write(both.source.kafka_address, 0, RECORDS)
    yield both
    for one in both:
        one.kill()


def create_topics(address: str) -> None:
    topics = [NewTopic("orders", PARTITIONS, 1), NewTopic("quiet", 1, 1)]
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics(topics).values():
        made.result()


def write(address: str, first: int, count: int) -> None:
    """Writes numbered records in transactions of 30, partition by turns; after every third one another is aborted."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": "writer"})
    producer.init_transactions()
    for begun in range(first, first + count, 30):
        for below, is_committed in ((0, True), (ABORTED, False)):
            if is_committed or begun % 90 == 0:
                producer.begin_transaction()
                for number in range(begun, begun + 30):
                    producer.produce("orders", b"%d" % (below + number), partition=number % 3)
                producer.flush()
                end = producer.commit_transaction if is_committed else producer.abort_transaction
                end()


def read_as_member(address: str, group: str, counts: Mapping[int, int]) -> dict[int, int]:
    """Reads `orders` as a member of the group, and commits after so many records of these partitions.

    Returns the offsets of all records that were read, by number.
    """
    settings = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    read: dict[int, dict[int, int]] = {index: {} for index in range(PARTITIONS)}
    while any(len(read[index]) < count for index, count in counts.items()):
        for message in consumer.consume(500, 1.0):
            assert message.error() is None
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert value is not None
            read[partition][int(value)] = offset
    rows = [
        Assigned("orders", index, list(read[index].values())[count - 1] + 1)
        for index, count in counts.items()
    ]
    consumer.commit(offsets=rows, asynchronous=False)
    consumer.close()
    return {number: offset for offsets in read.values() for number, offset in offsets.items()}


def committed(address: str, group: str) -> dict[TopicPartition, int]:
    with ClusterGroups(address) as groups:
        return {one: found.offset for one, found in groups.committed(group).items()}


def commit_ends(address: str, group: str) -> dict[int, int]:
    """Commits the ends of all partitions, as Java's consumer does once it has read a transaction's marker."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    ends = {
        index: consumer.get_watermark_offsets(Assigned("orders", index), timeout=30)[1]
        for index in range(PARTITIONS)
    }
    rows = [Assigned("orders", *item) for item in ends.items()] + [Assigned("quiet", 0, 0)]
    consumer.commit(offsets=rows, asynchronous=False)
    consumer.close()
    return ends


def test_real_consumers_go_on_in_the_target(clusters: Clusters, tmp_path: Path) -> None:
    """Nothing from their committed offsets on is skipped, and no more is read again than the translation promises."""
    source, target = (one.kafka_address for one in clusters)
    share = RECORDS // PARTITIONS
    read_as_member(source, "behind", {0: 50, 1: 300, 2: share - 1})
    read_as_member(source, "partly", {0: 100, 1: 550})
    mirrored = commit_ends(source, "at-end")
    arguments = ("mirror", "--from", source, "--to", target, "--topics-pattern", ".*")
    arguments += ("--create-topics", "--checkpoint", str(tmp_path / "checkpoint"))
    arguments += ("--batch-records", str(BATCH_RECORDS), "--interval-s", "0.2")
    arguments += ("--sync-groups", ".*", "--groups-interval-s", "1")
    faults = Faults(Admin(clusters.target.admin_address))
    with PipelineProcess(*arguments, directory=tmp_path / "mirror") as mirror:
        copied = {orders(index): share for index in range(PARTITIONS)}
        copied[TopicPartition("quiet", 0)] = 0
        mirror.wait_until(lambda: committed(target, "at-end") == copied)
        with faults.rule("hold_request", match={"api": "produce", "topic": "orders"}) as held:
            write(source, RECORDS, LATER)
            mirror.wait_until(lambda: held.held > 0)
            later = LATER // PARTITIONS
            places = read_as_member(
                source, "ahead", dict.fromkeys(range(PARTITIONS), share + later)
            )
            mirror.wait_until(lambda: len(committed(target, "ahead")) == PARTITIONS)
            done = {group: committed(source, group) for group in CLIENTS}
            clusters.source.kill()
        mirror.wait_until(lambda: count_stored(target, "orders", PARTITIONS) > RECORDS)
        mirror.kill()
        mirror.wait_for_group()
    check_members(target, tmp_path, Positions(places, mirrored, done))


class Positions(NamedTuple):
    """Positions of records and groups in the source."""

    places: Mapping[int, int]
    """Offset of each record, by number."""
    mirrored: Mapping[int, int]
    """Ends of partitions that groups were translated by."""
    done: Mapping[str, Mapping[TopicPartition, int]]
    """Committed offsets of the groups."""


def check_members(target: str, directory: Path, source: Positions) -> None:
    """Starts a consumer of each group in the target, and checks what it reads there."""
    stored = {index: stored_numbers(target, index) for index in range(PARTITIONS)}
    positions = {group: committed(target, group) for group in CLIENTS}
    members = {
        group: Member(kind, 0, directory, session_ms=SESSION_MS) for group, kind in CLIENTS.items()
    }
    again: dict[str, list[int]] = {group: [] for group in CLIENTS}
    try:
        for group, member in members.items():
            member.start(target, "orders", group)
        for group, member in members.items():
            begins = {index: positions[group].get(orders(index), 0) for index in stored}
            read = read_to_end(member, {index: stored[index][begins[index] :] for index in stored})
            for index, numbers in read.items():
                committed_at = source.done[group].get(orders(index), 0)
                wanted = [n for n in stored[index] if source.places[n] >= committed_at]
                more = len(numbers) - len(wanted)
                lag = max(0, source.mirrored[index] - committed_at)
                assert numbers == stored[index][len(stored[index]) - len(numbers) :]
                assert 0 <= more <= BATCH_RECORDS // PARTITIONS + 1 + lag / 2, (group, index)
                again[group].append(more)
    finally:
        for member in members.values():
            member.kill()
    assert again["at-end"] == [0] * PARTITIONS
    assert sum(again["ahead"]) > 0, "it had committed what was not mirrored yet"


def orders(index: int) -> TopicPartition:
    return TopicPartition("orders", index)


def stored_numbers(address: str, partition: int) -> list[int]:
    """The numbers of the records that are stored, in order."""
    return [int(one.value or b"") for one in stored_records(address, "orders", partition)]


def read_to_end(member: Member, wanted: Mapping[int, list[int]]) -> dict[int, list[int]]:
    """Returns the numbers that a consumer has read when it has had the last wanted one of each partition."""
    deadline = time.monotonic() + _READ_S
    read: dict[int, list[int]] = {index: [] for index in wanted}
    while any(numbers and numbers[-1] not in read[index] for index, numbers in wanted.items()):
        assert time.monotonic() < deadline, (member.name, member.said())
        for one in member.tail.read():
            if isinstance(one, Read):
                read[one.partition].append(one.number)
        time.sleep(0.05)
    return read
