"""Readers of committed records: what they are given, and when."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from echoless.broker.network.request import Peer
from echoless.broker.partitions.partition import Partition
from echoless.broker.records import fetch as fetch_module
from echoless.protocol.control_records import MarkerType, read_marker
from echoless.protocol.errors import ErrorCode
from echoless.protocol.fetch import PartitionFetched
from echoless.protocol.fetch_request import FetchPartition, FetchRequest, FetchTopic
from echoless.protocol.record_batch import walk
from echoless.protocol.records import read_records
from tests.broker.handlers.test_fetch_sessions import LONG_MS
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, create_topic
from tests.support.session_client import INT32_MAX, ask, send
from tests.support.transactions_by_hand import HandMadeTransactions

COMMITTED, UNCOMMITTED = 1, 0


def partition_of(running: Running) -> Partition:
    return running.broker.partitions["t", 0]


async def read(
    running: Running, offset: int, *, isolation: int = COMMITTED, bytes_max: int = INT32_MAX
) -> Any:
    """The row of one fetch."""
    wanted = FetchRequest(
        0, 1, bytes_max, isolation, -1, [FetchTopic("t", [FetchPartition(0, offset, bytes_max)])]
    )
    answer = fetch_module.fetch(running.broker.services.fetch, wanted, Peer(1, "127.0.0.1:1"), 1)
    ((_, (row,)),) = answer if isinstance(answer, list) else await answer
    return row


def visible(row: Any, offset: int) -> list[tuple[int, bytes]]:
    """The records that a consumer of committed records makes of a row, by Kafka's rule."""
    to_come = sorted(row.aborted, key=lambda one: one[1])
    aborted: set[int] = set()
    found = []
    for position, header in walk(row.records):
        batch = row.records[position : position + header.size]
        while to_come and to_come[0][1] <= header.last_offset:
            aborted.add(to_come.pop(0)[0])
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and marker.type is MarkerType.ABORT:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            found += [(r.offset, r.value or b"") for r in read_records(batch)]
    return [one for one in found if one[0] >= offset]


async def test_only_what_was_committed_is_seen(running: Running, kafka: RawConnection) -> None:
    """Nothing of an open transaction, nor of what follows it; then all of it, or none."""
    await create_topic(kafka, "t", 1)
    hand = HandMadeTransactions(partition_of(running))
    hand.write(1, b"a", b"b")
    hand.write(2, b"c")
    row = await read(running, 0)
    assert (row.records, row.last_stable_offset, row.high_watermark) == (b"", 0, 3)
    hand.end(2, MarkerType.ABORT)
    assert (await read(running, 0)).records == b""
    hand.end(1, MarkerType.COMMIT)
    row = await read(running, 0)
    assert row.aborted == [(2, 2)]
    assert visible(row, 0) == [(0, b"a"), (1, b"b")]
    everything = await read(running, 0, isolation=UNCOMMITTED)
    assert everything.aborted is None
    assert everything.records == row.records


@pytest.mark.parametrize("seed", range(3))
async def test_any_history_read_from_anywhere(
    running: Running, kafka: RawConnection, seed: int
) -> None:
    """Whatever the offset and the limit, a consumer sees what is committed, and moves on."""
    await create_topic(kafka, "t", 1)
    partition, rng = partition_of(running), random.Random(seed)
    hand, open_values = HandMadeTransactions(partition), dict[int, list[tuple[int, bytes]]]()
    committed: list[tuple[int, bytes]] = []
    for turn in range(120):
        producer_id = rng.randrange(4)
        if rng.random() < 0.6:
            values = [f"{turn}-{n}".encode() * rng.choice([1, 1, 300]) for n in range(2)]
            first = hand.write(producer_id, *values)
            open_values.setdefault(producer_id, []).extend(enumerate(values, first))
        elif producer_id in open_values:
            values_of = open_values.pop(producer_id)
            if rng.random() < 0.5:
                hand.end(producer_id, MarkerType.COMMIT)
                committed += values_of
            else:
                hand.end(producer_id, MarkerType.ABORT)
        if rng.random() < 0.05:
            partition.log.roll()
    stable = partition.last_stable_offset
    expected = sorted(one for one in committed if one[0] < stable)
    assert partition.last_stable_offset == min(
        [partition.high_watermark, *(values[0][0] for values in open_values.values())]
    )
    for _ in range(30):
        start = offset = rng.randrange(stable + 1)
        found: list[tuple[int, bytes]] = []
        while offset < stable:
            row = await read(running, offset, bytes_max=rng.choice([1, 500, 5000, INT32_MAX]))
            assert row.error_code == ErrorCode.NONE
            assert row.records
            found += visible(row, offset)
            offset = [header.next_offset for _, header in walk(row.records)][-1]
        assert offset == stable
        assert found == [one for one in expected if one[0] >= start]


async def test_the_list_of_aborted_transactions_stays_near_what_was_read(
    running: Running, kafka: RawConnection
) -> None:
    """A small read in front of thousands of aborted transactions does not name them all."""
    await create_topic(kafka, "t", 1)
    hand = HandMadeTransactions(partition_of(running))
    for _ in range(1000):
        hand.write(1, b"x" * 100)
        hand.end(1, MarkerType.ABORT)
    row = await read(running, 100, bytes_max=1000)
    assert 1 <= len(row.aborted) <= 100
    assert visible(row, 100) == []


async def test_the_list_of_aborted_transactions_ends_with_the_segment(
    running: Running, kafka: RawConnection
) -> None:
    """A read ends there as well: as in Kafka, later transactions are left to later reads."""
    await create_topic(kafka, "t", 1)
    hand = HandMadeTransactions(partition_of(running))
    for producer_id in (1, 2):
        hand.write(producer_id, b"x")
    hand.end(1, MarkerType.ABORT)
    hand.partition.log.roll()
    hand.end(2, MarkerType.ABORT)
    hand.write(3, b"x")
    hand.end(3, MarkerType.ABORT)
    row = await read(running, 0)
    assert sorted(row.aborted) == [(1, 0), (2, 1)]
    row = await read(running, 3)
    assert sorted(row.aborted) == [(2, 1), (3, 4)]


async def test_a_wait_ends_when_the_transaction_has(running: Running, kafka: RawConnection) -> None:
    """A reader of committed records is answered with the marker, one of all records with the batch."""
    await create_topic(kafka, "t", 1)
    hand = HandMadeTransactions(partition_of(running))
    both = [await RawConnection.open(running.kafka_address) for _ in range(2)]
    for level, reader in enumerate(both):
        send(reader, (0, -1), {"t": [(0, 0)]}, max_wait_ms=LONG_MS, isolation_level=level)
    committed = asyncio.ensure_future(both[COMMITTED].receive_response("fetch", 12))
    uncommitted = asyncio.ensure_future(both[UNCOMMITTED].receive_response("fetch", 12))
    hand.write(1, b"a")
    (topic,) = (await uncommitted).responses
    assert topic.partitions[0].records
    assert not committed.done()
    hand.end(1, MarkerType.COMMIT)
    (topic,) = (await committed).responses
    assert topic.partitions[0].last_stable_offset == 2
    for reader in both:
        await reader.close()


@pytest.mark.parametrize("is_session", [True, False])
async def test_kept_rows_follow_the_last_stable_offset(
    running: Running, kafka: RawConnection, is_session: bool
) -> None:
    """Rows of a session, or of a connection that repeats its requests, are answered as those of a first request."""
    count, rng = 20, random.Random(4)
    await create_topic(kafka, "t", count)
    partitions = [running.broker.partitions["t", index] for index in range(count)]
    hands = [HandMadeTransactions(one) for one in partitions]
    offsets, number = [0] * count, 0
    committed: list[list[bytes]] = [[] for _ in range(count)]
    seen: list[list[bytes]] = [[] for _ in range(count)]
    open_values: dict[tuple[int, int], list[bytes]] = {}
    changed = range(count)
    for turn in range(60):
        names = changed if is_session and turn else range(count)
        session = (number, turn) if is_session else (0, -1)
        rows = {"t": [(index, offsets[index]) for index in names]} if names else {}
        response = await ask(kafka, session, rows, isolation_level=COMMITTED)
        assert response.error_code == 0
        number, changed = response.session_id, []
        for row in [row for topic in response.responses for row in topic.partitions]:
            index = row.partition_index
            assert row.last_stable_offset == partitions[index].last_stable_offset
            assert row.aborted_transactions is not None
            if row.records:
                aborted = [(one.producer_id, one.first_offset) for one in row.aborted_transactions]
                found = PartitionFetched(index, records=row.records, aborted=aborted)
                seen[index] += [value for _, value in visible(found, offsets[index])]
                offsets[index] = [header.next_offset for _, header in walk(row.records)][-1]
                changed.append(index)
        assert offsets == [one.last_stable_offset for one in partitions]
        assert seen == committed  # of a partition only one transaction is open at a time
        for _ in range(rng.randrange(6)):
            index, producer_id = rng.randrange(count), rng.randrange(2)
            key = index, producer_id
            if key in open_values and rng.random() < 0.6:
                kind = rng.choice([MarkerType.COMMIT, MarkerType.ABORT])
                hands[index].end(producer_id, kind)
                values = open_values.pop(key)
                if kind is MarkerType.COMMIT:
                    committed[index] += values
            elif key in open_values or not any(one[0] == index for one in open_values):
                value = b"%d-%d" % (turn, producer_id)
                hands[index].write(producer_id, value)
                open_values.setdefault(key, []).append(value)


async def test_the_end_of_the_log_depends_on_the_reader(
    running: Running, kafka: RawConnection
) -> None:
    """ListOffsets: latest is the last stable offset for readers of committed records; so is a search by time."""
    await create_topic(kafka, "t", 1)
    hand = HandMadeTransactions(partition_of(running))
    hand.write(1, b"a")
    ends = {}
    for level in (UNCOMMITTED, COMMITTED):
        for timestamp in (-1, 0):
            response = await kafka.call(
                "list_offsets", 7, replica_id=-1, isolation_level=level, topics=_asked(timestamp)
            )
            ends[level, timestamp] = response.topics[0].partitions[0].offset
    assert ends == {(0, -1): 1, (0, 0): 0, (1, -1): 0, (1, 0): -1}


def _asked(timestamp: int) -> Any:
    from tests.support.raw_client import nested

    topic, partition = (
        nested("list_offsets", 7, name) for name in ("ListOffsetsTopic", "ListOffsetsPartition")
    )
    row = partition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    return (topic(name="t", partitions=(row,)),)


async def test_librdkafka_reads_what_is_committed(running: Running, kafka: RawConnection) -> None:
    """Both isolation levels of a real client, with markers and aborted batches in between."""
    await create_topic(kafka, "t", 1)
    hand = HandMadeTransactions(partition_of(running))
    for turn in range(50):
        hand.write(1, b"good %d" % turn)
        hand.write(2, b"bad %d" % turn)
        hand.end(2, MarkerType.ABORT)
        hand.end(1, MarkerType.COMMIT)
    hand.write(3, b"open")

    def values(level: str, count: int) -> list[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": running.kafka_address,
                "group.id": "g",
                "isolation.level": level,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition("t", 0, 0)])
        found: list[bytes] = []
        while True:
            one = consumer.poll(30)
            assert one is not None, f"{len(found)} of {count}"
            if one.error() is not None:
                break
            found.append(one.value() or b"")
        consumer.close()
        return found

    committed = await asyncio.to_thread(values, "read_committed", 50)
    assert committed == [b"good %d" % turn for turn in range(50)]
    everything = await asyncio.to_thread(values, "read_uncommitted", 101)
    assert len(everything) == 101
