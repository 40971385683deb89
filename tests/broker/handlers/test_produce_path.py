"""The whole produce path, from bytes to bytes, against a plain model of it.

Random requests go through the real connection code, cut into reads anywhere. The model decides one batch at a
time with the de-duplication decision and a dictionary; it knows neither of the path's shape nor of its order.
"""

from __future__ import annotations

import asyncio
import gzip
import random
import struct
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from echoless.broker.config.names import LogFlush
from echoless.broker.handlers.dispatch import KafkaDispatcher
from echoless.broker.metrics import Metrics
from echoless.broker.network.connection import Connection
from echoless.broker.network.memory_budget import MemoryBudget
from echoless.broker.network.unsent_answers import UNSENT_BYTES_MAX, UnsentAnswers
from echoless.protocol import dedup
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import HEADER_SIZE, BatchHeader, Codec, read_header
from tests.support.in_process import Running, in_process
from tests.support.raw_batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Batch, records
from tests.support.raw_client import RawConnection, create_topic, topic_id
from tests.support.raw_produce import (
    PartitionAnswer,
    PartitionData,
    decode_produce,
    encode_produce,
    is_flexible,
)

PARTITIONS = 3
REQUESTS_MAX = 12
TIMEOUT_S = 60
API_VERSIONS = 18
GZIP = 1
TOPIC_IDS_FROM = 13
CODES = {
    "magic": ErrorCode.INVALID_RECORD,
    "crc": ErrorCode.CORRUPT_MESSAGE,
    "cut": ErrorCode.INVALID_RECORD,
    "behind": ErrorCode.CORRUPT_MESSAGE,
    "two": ErrorCode.INVALID_RECORD,
    "offset": ErrorCode.INVALID_RECORD,
    "codec": ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    "count": ErrorCode.INVALID_RECORD,
    "control": ErrorCode.INVALID_RECORD,
    "sequence": ErrorCode.INVALID_RECORD,
    "payload": ErrorCode.INVALID_RECORD,
    "append time": ErrorCode.INVALID_TIMESTAMP,
    "null": ErrorCode.INVALID_RECORD,
}
"""Codes that damages are answered with (`docs/protocol/produce.md`)."""
BITS = {"control": CONTROL, "append time": LOG_APPEND_TIME}
FIELDS: dict[str, dict[str, int]] = {
    "magic": {"magic": 1},
    "crc": {"crc": 1},
    "offset": {"base_offset": 1},
    "codec": {"attributes": 7},
    "sequence": {"producer_id": 5, "producer_epoch": 0, "base_sequence": -1},
}
"""The fields that a damage sets."""


class Sent(NamedTuple):
    """One batch, and the code that its bytes alone deserve."""

    data: bytes | None
    code: ErrorCode
    is_transactional: bool = False


class Produce(NamedTuple):
    """One request and its answer, if there is one."""

    frame: bytes
    version: int
    expected: list[tuple[int, int, int]] | None
    """Partition, code and base offset of each row; None for another API."""


class Model:
    """Partitions of one topic."""

    def __init__(self) -> None:
        self.logs = [b""] * PARTITIONS
        self.ends = [0] * PARTITIONS
        self._entries: dict[tuple[int, int], dedup.ProducerEntry] = {}
        self._records: dict[tuple[int, int], bytes] = {}
        """By partition and base offset."""

    def produce(self, partition: int, data: bytes) -> tuple[int, int]:
        """The code and the base offset of a sound batch."""
        header, end = read_header(data), self.ends[partition]
        if header.producer_id < 0:
            return 0, self._append(partition, header, data)
        key = partition, header.producer_id
        entry = self._entries.get(key)
        decision = dedup.decide(entry, header, dedup.PartitionRules(end > 0))
        if isinstance(decision, dedup.Duplicate):
            base_offset = decision.original.base_offset
            if _records(header, data) != self._records[partition, base_offset]:
                return ErrorCode.UNKNOWN_PRODUCER_ID, -1
            return 0, base_offset
        if isinstance(decision, dedup.Reject):
            return decision.code, -1
        self._entries[key] = dedup.commit(entry, header, end, 0)
        return 0, self._append(partition, header, data)

    def _append(self, partition: int, header: BatchHeader, data: bytes) -> int:
        base_offset = self.ends[partition]
        stamp = struct.pack(">qii", base_offset, len(data) - 12, 0)
        self.logs[partition] += stamp + data[len(stamp) :]
        self._records[partition, base_offset] = _records(header, data)
        self.ends[partition] += header.record_count
        return base_offset


def _records(header: BatchHeader, data: bytes) -> bytes:
    records = data[HEADER_SIZE:]
    return gzip.decompress(records) if header.codec_id == Codec.GZIP else records


class Requests:
    """Random requests to one topic."""

    def __init__(self, seed: int, topic: str, id_: uuid.UUID) -> None:
        self._random = random.Random(seed)
        self._topic, self._id = topic, id_
        self._versions = [self._random.randrange(3, 14) for _ in range(2)]
        """Few, because a client's requests begin alike, which the path makes use of."""
        self._next: dict[tuple[int, int], int] = {}
        self._sent: list[tuple[int, bytes]] = []
        self.model = Model()

    def next(self, number: int) -> Produce:
        """One request of any kind, and what it is answered with; the last waits for all others."""
        draw, is_last = self._random, number == REQUESTS_MAX - 1
        if draw.random() < 0.1 and not is_last:
            return Produce(_frame(API_VERSIONS, 0, number, b""), 0, None)
        version = draw.choice(self._versions)
        rows = [self._row() for _ in range(draw.choice((1, 1, 1, 2, 4)))]
        is_unknown = draw.random() < 0.1
        expected = self._expected(rows, is_unknown=is_unknown, version=version)
        acks = draw.choice((1, -1, 0))
        if acks == 0 and (is_last or any(code for _, code, _ in expected)):
            acks = -1
        key: str | uuid.UUID = self._topic
        if version >= TOPIC_IDS_FROM:
            key = uuid.UUID(int=7) if is_unknown else self._id
        elif is_unknown:
            key = "unknown"
        data = [PartitionData(key, index, sent.data) for index, sent in rows]
        frame = _frame(0, version, number, encode_produce(version, acks, data))
        return Produce(frame, version, expected if acks else [])

    def cuts(self, data: bytes) -> list[bytes]:
        """The bytes in reads of any size."""
        pieces, position = [], 0
        while position < len(data):
            size = self._random.choice((1, 3, 61, 700, 5000, len(data)))
            pieces.append(data[position : position + size])
            position += size
        return pieces

    def _expected(
        self, rows: list[tuple[int, Sent]], *, is_unknown: bool, version: int
    ) -> list[tuple[int, int, int]]:
        indexes = [index for index, _ in rows]
        if any(sent.is_transactional for _, sent in rows):
            refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return [(index, refused, -1) for index in dict.fromkeys(indexes)]
        answers = {}
        for index, sent in rows:
            if indexes.count(index) > 1:
                answers[index] = (index, int(ErrorCode.INVALID_REQUEST), -1)
            elif is_unknown:
                by_id = version >= TOPIC_IDS_FROM
                missing = (
                    ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                answers[index] = (index, int(missing), -1)
            elif index == PARTITIONS:
                answers[index] = (index, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), -1)
            elif sent.code or sent.data is None:
                answers[index] = (index, int(sent.code), -1)
            else:
                answers[index] = (index, *map(int, self.model.produce(index, sent.data)))
        return list(answers.values())

    def _row(self) -> tuple[int, Sent]:
        draw = self._random
        index = draw.choice((0, 0, 1, 1, 2, 2, PARTITIONS))
        if self._sent and draw.random() < 0.15:
            repeated = draw.choice(self._sent)
            return repeated[0], Sent(repeated[1], ErrorCode.NONE)
        return index, self._batch(index)

    def _batch(self, index: int) -> Sent:
        draw = self._random
        count = draw.choice((1, 1, 2, 20, 200))
        values = [draw.randbytes(draw.choice((0, 10, 100))) for _ in range(count)]
        if draw.random() < 0.1:
            values[0] = bytes(70_000)
        producer = draw.choice((-1, 5, 5, 5, 6, 2**52 + 1))
        batch = Batch(payload=records(values), record_count=count)
        if producer >= 0:
            sequence = self._next.get((index, producer), 0)
            if draw.random() < 0.1:
                sequence += draw.choice((-sequence, 1, 2))
            batch.producer_id, batch.producer_epoch, batch.base_sequence = producer, 0, sequence
        if draw.random() < 0.15:
            batch.attributes, batch.payload = GZIP, gzip.compress(batch.payload)
        if draw.random() < 0.15:
            return _damaged(batch, draw.choice(list(CODES)))
        if draw.random() < 0.03:
            batch.attributes |= TRANSACTIONAL
            return Sent(batch.encode(), ErrorCode.NONE, is_transactional=True)
        if producer >= 0:
            self._next[index, producer] = batch.base_sequence + count
        data = batch.encode()
        self._sent.append((index, data))
        return Sent(data, ErrorCode.NONE)


def _damaged(batch: Batch, damage: str) -> Sent:
    if damage == "count":
        batch.last_offset_delta += 1
    elif damage == "payload":
        batch.attributes, batch.payload = 0, b"\x7e" * max(8 * batch.record_count, 20)
    elif damage in BITS:
        batch.attributes |= BITS[damage]
    for name, value in FIELDS.get(damage, {}).items():
        setattr(batch, name, value)
    whole = batch.encode()
    others = {"cut": whole[: HEADER_SIZE - 1], "behind": whole + b"x", "two": whole + whole}
    return Sent(None if damage == "null" else others.get(damage, whole), CODES[damage])


def _frame(api: int, version: int, correlation_id: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", api, version, correlation_id, 4) + b"test"
    tags = b"\0" if api == 0 and is_flexible(version) else b""
    return struct.pack(">i", len(head + tags + body)) + head + tags + body


class Wire:
    """The transport of a connection that the test feeds."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.is_paused = self.is_closed = False
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns once the condition holds, which only the connection can change."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def write(self, data: bytes) -> None:
        self.written += data
        self._changed.set()

    def writelines(self, buffers: list[bytes]) -> None:
        self.write(b"".join(buffers))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, **_: object) -> None:
        pass

    def get_extra_info(self, _: str) -> object:
        return ("127.0.0.1", 5)

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False
        self._changed.set()

    def close(self) -> None:
        self.is_closed = True
        self._changed.set()

    abort = close

    def answers(self) -> list[bytes]:
        """Every whole answer so far."""
        found, position = [], 0
        while position + 4 <= len(self.written):
            (size,) = struct.unpack_from(">i", self.written, position)
            found.append(bytes(self.written[position + 4 : position + 4 + size]))
            position += 4 + size
        return found


def _connected(running: Running, wire: Wire) -> Connection:
    connection = Connection(
        KafkaDispatcher(running.broker.services),
        connection_id=1,
        frame_size_max=10_000_000,
        budget=MemoryBudget(10_000_000),
        unsent=UnsentAnswers(UNSENT_BYTES_MAX),
        connections=set(),
        metrics=Metrics(),
    )
    connection.connection_made(wire)  # type: ignore[arg-type]
    return connection


async def _send(connection: Connection, wire: Wire, pieces: list[bytes]) -> None:
    for piece in pieces:
        left = memoryview(piece)
        while left:
            await wire.until(lambda: not wire.is_paused)
            room = connection.get_buffer(len(left))
            size = min(len(room), len(left))
            room[:size] = left[:size]
            connection.buffer_updated(size)
            left = left[size:]


def _rows(produce: Produce, answer: bytes) -> list[tuple[int, int, int]]:
    flexible = is_flexible(produce.version)
    found: list[PartitionAnswer] = decode_produce(produce.version, answer[5 if flexible else 4 :])
    return [(row.partition, row.error, row.base_offset) for row in found]


async def _check(directory: Path, log_flush: LogFlush, seeds: list[int]) -> None:
    settings_of_broker = {"log_flush": log_flush, "log_retention_ms": -1}  # batches are of 1970
    async with in_process(directory, **settings_of_broker) as running, asyncio.timeout(TIMEOUT_S):
        client = await RawConnection.open(running.kafka_address)
        for number, seed in enumerate(seeds):
            topic = f"topic-{number}"
            await create_topic(client, topic, PARTITIONS)
            await _check_one(running, directory, topic, await topic_id(client, topic), seed)
        await client.close()


async def _check_one(
    running: Running, directory: Path, topic: str, id_: uuid.UUID, seed: int
) -> None:
    source = Requests(seed, topic, id_)
    sent = [source.next(number) for number in range(REQUESTS_MAX)]
    wire = Wire()
    connection = _connected(running, wire)
    await _send(connection, wire, source.cuts(b"".join(one.frame for one in sent)))
    answered = [(number, one) for number, one in enumerate(sent) if one.expected != []]
    await wire.until(lambda: wire.is_closed or len(wire.answers()) >= len(answered))
    connection.connection_lost(None)
    answers = wire.answers()
    assert len(answers) == len(answered), f"seed {seed}"
    for (number, one), answer in zip(answered, answers, strict=True):
        assert struct.unpack_from(">i", answer)[0] == number, f"seed {seed}, request {number}"
        if one.expected is not None:
            assert _rows(one, answer) == one.expected, f"seed {seed}, request {number}"
    for index, log in enumerate(source.model.logs):
        file = directory / "data" / f"{topic}-{index}" / f"{0:020}.log"
        assert file.read_bytes() == log, f"seed {seed}, partition {index}"


@pytest.mark.slow
@pytest.mark.parametrize("log_flush", LogFlush)
@settings(max_examples=2, deadline=None)
@given(seeds=st.lists(st.integers(0, 2**32), min_size=15, max_size=15))
@example(seeds=[4000])  # the sequences of a stored batch with other records
def test_answers_and_log_bytes_are_those_of_a_plain_model(
    tmp_path_factory, log_flush: LogFlush, seeds: list[int]
) -> None:
    """Any requests in any reads are answered, and stored, as a model that takes one batch at a time says."""
    directory = tmp_path_factory.mktemp("produce")
    asyncio.run(_check(directory, log_flush, seeds))
