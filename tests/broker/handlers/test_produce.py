"""Produce on the Kafka port: what is refused, and batches that are opened in a thread.

`tests/broker/records/test_produce.py` has what both ports share.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import random
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.config.loading import LogFlush
from echoless.broker.threads import DISK
from echoless.protocol.compression import DECOMPRESSED_BYTES_MAX
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import TRANSACTIONAL_BIT, Codec
from echoless.protocol.records import Record, build_batch
from tests.hostile.bombs import tiny_records, zeros
from tests.support.in_process import Running, in_process
from tests.support.native_client import NativeConnection
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, create_topic, fetch_log, topic_id
from tests.support.raw_produce import PartitionData

PRODUCER = {"producer_id": 7, "producer_epoch": 0}
LARGE = 20_000
"""Records of a batch that no loop opens."""


def batch(count: int, base_sequence: int, codec: Codec = Codec.ZSTD) -> bytes:
    records = [Record(0, 0, None, b"%d" % base_sequence)] * count
    return build_batch(records, codec=codec, base_sequence=base_sequence, **PRODUCER)


# --- refusals ---


async def test_a_partition_that_is_listed_twice_gets_neither_batch(kafka: RawConnection) -> None:
    """One row with the error; the others are processed."""
    await create_topic(kafka, "t", 2)
    rows = [PartitionData("t", index, batch(1, 0)) for index in (0, 1, 0)]
    answers = await kafka.produce(9, -1, rows)
    assert [(one.partition, one.error) for one in answers] == [
        (0, ErrorCode.INVALID_REQUEST),
        (1, ErrorCode.NONE),
    ]
    assert await fetch_log(kafka, "t", 0) == []


@pytest.mark.parametrize("version", [3, 8, 9, 13])
async def test_transactions_are_refused(kafka: RawConnection, version: int) -> None:
    """All partitions of the request, with the error that every client takes as final."""
    await create_topic(kafka, "t", 2)
    topic = await topic_id(kafka, "t") if version >= 13 else "t"
    transactional = replace(plain_batch([b"v"]), attributes=TRANSACTIONAL_BIT).encode()
    rows = [PartitionData(topic, 0, batch(1, 0)), PartitionData(topic, 1, transactional)]
    answers = await kafka.produce(version, -1, rows)
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert [answer.error for answer in answers] == [code] * 2
    assert await fetch_log(kafka, "t", 0) == []


@pytest.mark.parametrize("version", [3, 9, 13])
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_transactional_batch_is_not_hidden_by_another(
    kafka: RawConnection, version: int, is_first: bool
) -> None:
    """53 for the flag in the first of two batches, 87 for the second batch itself (CVE-2018-17196)."""
    await create_topic(kafka, "t", 1)
    topic = await topic_id(kafka, "t") if version >= 13 else "t"
    plain = plain_batch([b"v"])
    both = [plain.encode(), replace(plain, attributes=TRANSACTIONAL_BIT).encode()]
    data = b"".join(reversed(both) if is_first else both)
    (answer,) = await kafka.produce(version, -1, [PartitionData(topic, 0, data)])
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert answer.error == (refused if is_first else ErrorCode.INVALID_RECORD)
    assert await fetch_log(kafka, "t", 0) == []


@pytest.mark.parametrize("version", [3, 9, 13])
async def test_without_acknowledgement_there_is_no_answer(
    kafka: RawConnection, version: int
) -> None:
    """The next answer belongs to the next request, and the batch is stored."""
    await create_topic(kafka, "t", 1)
    topic = await topic_id(kafka, "t") if version >= 13 else "t"
    first, second = (batch(1, sequence, Codec.NONE) for sequence in (0, 1))
    kafka.send_produce(version, 0, [PartitionData(topic, 0, first)])
    (answer,) = await kafka.produce(version, 1, [PartitionData(topic, 0, second)])
    assert (answer.error, answer.base_offset) == (ErrorCode.NONE, 1)


async def test_an_unknown_topic_id_is_refused(kafka: RawConnection) -> None:
    """From version 13 on topics have no names."""
    (answer,) = await kafka.produce(13, -1, [PartitionData(uuid.UUID(int=9), 0, batch(1, 0))])
    assert answer.error == ErrorCode.UNKNOWN_TOPIC_ID


# --- batches that are opened in a thread ---


@functools.cache
def sizes_and_batches() -> list[bytes]:
    """Large and small in turn, of one producer, in the order of their sequences."""
    batches, sequence = [], 0
    for count in (LARGE, 1, 1, LARGE, 2, LARGE, 1):
        batches.append(batch(count, sequence))
        sequence += count
    return batches


@pytest.fixture
def held_thread(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Opening in the thread waits for this event."""
    from echoless.broker.records import pending

    may_go_on = threading.Event()
    check = pending.check_all

    def wait_and_check(*arguments: Any, **options: Any) -> None:
        assert may_go_on.wait(30)
        check(*arguments, **options)

    monkeypatch.setattr(pending, "check_all", wait_and_check)
    return may_go_on


@pytest.mark.parametrize("acks", [-1, 1, 0])
async def test_a_connections_batches_keep_their_order(
    kafka: RawConnection, held_thread: threading.Event, acks: int
) -> None:
    """Small batches after a large one wait for it: otherwise they would be gaps in the sequence."""
    await create_topic(kafka, "t", 1)
    batches = sizes_and_batches()
    for one in batches:
        kafka.send_produce(9, acks, [PartitionData("t", 0, one)])
    held_thread.set()
    if acks:
        answers = [(await kafka.receive_produce(9))[0] for _ in batches]
        assert [answer.error for answer in answers] == [ErrorCode.NONE] * len(batches)
    stored = await fetch_log(kafka, "t", 0)
    while sum(int.from_bytes(one.data[57:61]) for one in stored) < 3 * LARGE + 5:  # their records
        stored = await fetch_log(kafka, "t", 0)
    assert [one.data[61:] for one in stored] == [one[61:] for one in batches]


async def test_native_batches_keep_their_order(
    kafka: RawConnection, running: Running, held_thread: threading.Event
) -> None:
    """The same on the other port."""
    await create_topic(kafka, "t", 1)
    native = await NativeConnection.open(running.native_address)
    batches = sizes_and_batches()
    for one in batches:
        native.send(type="produce", topic="t", partition=0, batch=one)
    held_thread.set()
    answers = [await native.receive() for _ in batches]
    assert [answer["error"]["code"] for answer in answers] == [0] * len(batches)
    offsets = [answer["base_offset"] for answer in answers]
    assert offsets == sorted(offsets)
    await native.close()


async def test_others_are_served_while_a_batch_is_opened(
    kafka: RawConnection, running: Running, held_thread: threading.Event
) -> None:
    """Another connection produces to the same partition, and this one may ask for other things."""
    await create_topic(kafka, "t", 1)
    other = await RawConnection.open(running.kafka_address)
    other.send_produce(9, -1, [PartitionData("t", 0, tiny_records(LARGE, Codec.ZSTD))])
    (answer,) = await kafka.produce(9, -1, [PartitionData("t", 0, tiny_records(1, Codec.ZSTD))])
    assert (answer.error, answer.base_offset) == (ErrorCode.NONE, 0)
    held_thread.set()
    (late,) = await other.receive_produce(9)
    assert (late.error, late.base_offset) == (ErrorCode.NONE, 1)
    await other.close()


async def test_a_client_that_leaves_meanwhile_has_sent_nothing(
    kafka: RawConnection, running: Running, held_thread: threading.Event
) -> None:
    """Its batch was not acknowledged, and is not appended after its connection has ended."""
    await create_topic(kafka, "t", 1)
    gone = await RawConnection.open(running.kafka_address)
    gone.send_produce(9, -1, [PartitionData("t", 0, tiny_records(LARGE, Codec.ZSTD))])
    await kafka.call("metadata", 1, topics=())
    await gone.close()
    async with asyncio.timeout(60):
        while running.broker.metrics.connections_open > 1:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0)
    held_thread.set()
    (answer,) = await kafka.produce(9, -1, [PartitionData("t", 0, tiny_records(LARGE, Codec.ZSTD))])
    assert (answer.error, answer.base_offset) == (ErrorCode.NONE, 0)


async def test_a_topic_that_goes_meanwhile_is_unknown(
    kafka: RawConnection, running: Running, held_thread: threading.Event
) -> None:
    """The partition is looked up again after the wait."""
    await create_topic(kafka, "t", 1)
    other = await RawConnection.open(running.kafka_address)
    other.send_produce(9, -1, [PartitionData("t", 0, tiny_records(LARGE, Codec.ZSTD))])
    await kafka.call("delete_topics", 3, topic_names=("t",), timeout=datetime.timedelta(seconds=1))
    held_thread.set()
    (answer,) = await other.receive_produce(9)
    assert answer.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await other.close()


@pytest.mark.parametrize("acks", [-1, 1])
async def test_a_lead_that_is_lost_meanwhile_is_not_acknowledged(
    kafka: RawConnection, running: Running, held_thread: threading.Event, acks: int
) -> None:
    """A later leader may have cut off what was stored before the wait for another partition's batch."""
    await create_topic(kafka, "t", 2)
    small, large = tiny_records(1, Codec.ZSTD), tiny_records(LARGE, Codec.ZSTD)
    kafka.send_produce(9, acks, [PartitionData("t", 0, small), PartitionData("t", 1, large)])
    partition = running.broker.partitions["t", 0]
    async with asyncio.timeout(60):
        while not partition.log.log_end_offset:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0)
    partition.resign()
    held_thread.set()
    answers = {one.partition: one.error for one in await kafka.receive_produce(9)}
    assert answers == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER, 1: ErrorCode.NONE}


@pytest.mark.slow
async def test_what_a_request_expands_to_is_bounded(kafka: RawConnection) -> None:
    """Batches of one request share a bound; the one that goes beyond it is refused with 87."""
    await create_topic(kafka, "t", 4)
    bomb = zeros(DECOMPRESSED_BYTES_MAX * 2 // 5, Codec.ZSTD)
    rows = [PartitionData("t", index, bomb) for index in range(3)]
    rows.append(PartitionData("t", 3, tiny_records(1, Codec.NONE)))
    answers = await kafka.produce(9, -1, rows)
    expected = [ErrorCode.NONE] * 2 + [ErrorCode.INVALID_RECORD, ErrorCode.NONE]
    assert [answer.error for answer in answers] == expected


def large_batch() -> bytes:
    """A batch of nearly 1 MB that is opened in the thread."""
    value = random.Random(1).randbytes(900_000)
    records = [Record(0, 0, None, value), *[Record(0, 0, None, b"")] * LARGE]
    return build_batch(records, codec=Codec.ZSTD)


async def test_a_request_that_waits_for_the_thread_keeps_its_connection(
    tmp_path: Path, held_thread: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even while others wait for its memory: it has arrived whole, and the broker is what is slow."""
    monkeypatch.setattr("echoless.broker.network.memory_budget.WORK_S", 0.0)
    async with in_process(tmp_path, request_size_max=1_048_588) as running:
        memory = running.broker.request_memory
        connections = [await RawConnection.open(running.kafka_address) for _ in range(8)]
        await create_topic(connections[0], "t", 1)
        data = large_batch()
        for connection in connections:
            connection.send_produce(9, -1, [PartitionData("t", 0, data)])
        async with asyncio.timeout(20):
            while not memory.is_awaited:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.001)
        monkeypatch.setattr("echoless.broker.network.memory_budget.SILENCE_S", 60.0)
        memory.sweep()
        assert (memory.is_awaited, memory.evicted_total) == (True, 0)
        held_thread.set()
        for connection in connections:
            (answer,) = await connection.receive_produce(9)
            assert answer.error == ErrorCode.NONE
            await connection.close()


async def test_memory_is_free_before_the_acknowledgement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appended records are in the file: a wait for a flush or for replicas needs none in memory."""
    may_flush = asyncio.Event()
    run = DISK.run

    async def wait_and_run(work: Callable[[], object]) -> object:
        await may_flush.wait()
        return await run(work)

    async with in_process(tmp_path, log_flush=LogFlush.COMMIT) as running:
        kafka = await RawConnection.open(running.kafka_address)
        await create_topic(kafka, "t", 1)
        partition = running.broker.services.partitions.find("t", 0)
        monkeypatch.setattr(DISK, "run", wait_and_run)
        kafka.send_produce(9, -1, [PartitionData("t", 0, large_batch())])
        async with asyncio.timeout(20):
            while not partition.log.log_end_offset:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        assert running.broker.request_memory.used == 0
        assert partition.high_watermark == 0
        may_flush.set()
        (answer,) = await kafka.receive_produce(9)
        assert answer.error == ErrorCode.NONE
        await kafka.close()
