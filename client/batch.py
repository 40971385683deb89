"""Records on their way into a batch, and their outcome.

Where a batch ends depends on its records and the settings alone, so the same records make the same
batches in every run; with given timestamps and codec, byte for byte.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from aiokafka.partitioner import murmur2
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from echoless.client.acknowledgements import AcknowledgedBatch, Acknowledgements
from echoless.client.ready_batch import ReadyBatch, renumbered
from echoless.protocol.compression import compress
from echoless.protocol.record_batch import HEADER_SIZE, Codec, read_header, seal_batch
from echoless.protocol.records import Headers, Record, build_batch, read_records

RECORD_BYTES: Final = 21
"""Upper bound of a record's size besides key, value and headers (Kafka's own)."""
HEADER_BYTES: Final = 10
HEADER_KEY_BYTES: Final = 3
"""Upper bounds of a header's size besides key and value, and for each character of the key."""
_NO_LIMIT: Final = 2**31 - 1
_MAGIC: Final = 2

RecordFields = tuple[int, int, bytes | None, bytes | None, Headers]
"""The fields of a `Record`. As a plain tuple they cost the garbage collector nothing."""
Records = Sequence[tuple[int, int, bytes | None, bytes | None, Headers]] | ReadyBatch
"""The contents of one batch, at least one record: offset (ignored), timestamp in ms, key, value and headers of each."""


class DeliveryFuture(Protocol):
    """A future: asyncio's or `concurrent.futures`'."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: Any, /) -> None: ...
    def exception(self) -> BaseException | None: ...


@dataclass(slots=True, eq=False)
class Delivery:
    """A whole batch as the caller gave it; it may have been sent in several pieces."""

    outcome: DeliveryFuture
    """Resolves to `Acknowledgements`."""
    record_count: int
    size: int
    _parts: list[AcknowledgedBatch] | None = field(default=None, init=False)
    """The batches acknowledged so far, if there is more than one."""
    _acknowledged_count: int = field(default=0, init=False)

    def acknowledge(self, acknowledged: AcknowledgedBatch) -> bool:
        """Adds the acknowledgements of the next records; returns whether they were the last."""
        batches: Sequence[AcknowledgedBatch] = (acknowledged,)
        if acknowledged.record_count < self.record_count:
            if self._parts is None:
                self._parts = []
            self._parts.append(acknowledged)
            batches = self._parts
        self._acknowledged_count += acknowledged.record_count
        if self._acknowledged_count < self.record_count:
            return False
        if not self.outcome.done():
            self.outcome.set_result(Acknowledgements(batches))
        return True

    def fail(self, error: Exception) -> bool:
        """Fails the delivery; returns whether this is its first failure."""
        if self.outcome.done():
            return False
        self.outcome.set_exception(error)
        self.outcome.exception()  # `flush` reports it too, so no one needs to look
        return True


@dataclass(slots=True, eq=False)
class Piece:
    """The payload of a sequenced batch: records of one delivery, until `encode` replaces them by their bytes.

    A producer may have tens of thousands of batches outstanding, and the garbage collector looks at everything that
    they hold, again and again.
    """

    delivery: Delivery
    records: Records | None
    deadline: float
    """In the loop's time."""
    data: bytes = b""
    has_numbers: bool = False
    """Whether `data` has the numbers under which it is to be sent."""

    def encode(
        self,
        codec: Codec,
        *,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        is_transactional: bool = False,
    ) -> None:
        """Builds `data` under these numbers."""
        if self.records is None:
            self.data = renumbered(
                self.data,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
            )
        else:
            self.data = encode_batch(
                self.records,
                codec,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
                is_transactional=is_transactional,
            )
            self.records = None
        self.has_numbers = True

    @property
    def max_timestamp(self) -> int:
        if isinstance(self.records, ReadyBatch):
            return self.records.header.max_timestamp
        if self.records is None:
            return read_header(self.data).max_timestamp
        return max(record[1] for record in self.records)

    def divide(self, count: int) -> tuple[Piece, Piece]:
        """The first `count` records and the rest."""
        records = self._all_records()
        return (
            Piece(self.delivery, records[:count], self.deadline),
            Piece(self.delivery, records[count:], self.deadline),
        )

    def _all_records(self) -> Sequence[RecordFields]:
        if self.records is None:
            return read_records(self.data, _NO_LIMIT)
        return self.records.records() if isinstance(self.records, ReadyBatch) else self.records


def now_ms() -> int:
    """The current time for records without a timestamp."""
    return time.time_ns() // 1_000_000


def key_that_decides(key: bytes | None) -> bytes:
    """The key that chooses the partition. Raises `ValueError` without a key."""
    if key is None:
        raise ValueError("a record needs a partition, or a key that determines one")
    return key


def partition_of(key: bytes, partition_count: int) -> int:
    """The partition, from 0 on, that Kafka's own client chooses for the key (murmur2)."""
    number: int = murmur2(key)  # type: ignore[no-untyped-call]
    return (number & 0x7FFFFFFF) % partition_count


def record_size(record: RecordFields) -> int:
    """An upper bound of the record's size in a batch, from its own fields alone."""
    _, _, key, value, headers = record
    size = RECORD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += HEADER_BYTES + HEADER_KEY_BYTES * len(name) + len(content or b"")
    return size


def size_of(records: Records) -> int:
    """The sum of `record_size`."""
    return records.size if isinstance(records, ReadyBatch) else sum(map(record_size, records))


def encode_batch(
    records: Records,
    codec: Codec,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool = False,
) -> bytes:
    """The encoded batch, by aiokafka's C builder if possible; `build_batch` makes the same bytes.

    A `ReadyBatch` keeps its codec.
    """
    if isinstance(records, ReadyBatch):
        return records.stamped(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
    if records[0][1] < 0:  # a timestamp that aiokafka takes for "not set"
        return build_batch(
            [Record(*fields) for fields in records],
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
    builder = DefaultRecordBatchBuilder(
        _MAGIC, 0, is_transactional, producer_id, producer_epoch, base_sequence, _NO_LIMIT
    )
    append = builder.append
    for index, (_, timestamp, key, value, headers) in enumerate(records):
        append(index, timestamp, key, value, list(headers) if headers else [])
    batch = bytes(builder.build())
    if codec is Codec.NONE:
        return batch
    header = read_header(batch)
    body = compress(codec, memoryview(batch)[HEADER_SIZE:])
    return seal_batch(header._replace(attributes=header.attributes | codec), body)
