"""The record batch of magic 2: 61 header bytes read in place, the records left alone.

The same bytes are the wire format and the disk format. Only `base_offset` and
`partition_leader_epoch` are written by a broker, and both lie before the range that the CRC covers;
the one exception is a topic with log-append time (`with_log_append_time`).

Layout (big-endian), from Kafka's `DefaultRecordBatch`; worked example in `docs/formats/record-batch.md`:
    base_offset i64 | batch_length i32 | partition_leader_epoch i32 | magic i8 | crc u32 |
    attributes i16 | last_offset_delta i32 | base_timestamp i64 | max_timestamp i64 |
    producer_id i64 | producer_epoch i16 | base_sequence i32 | record_count i32 | records
`batch_length` counts what follows it; the CRC-32C covers from `attributes` to the end.

Called by every room that touches batches. Knows nothing of files and sockets.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from echoless.protocol.checksum import crc32c
from echoless.protocol.errors import DecodeError
from echoless.protocol.sequence import NO_SEQUENCE, increment

Buffer = bytes | bytearray | memoryview

BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
BATCH_PREFIX: Final = struct.Struct(">qi")
"""`base_offset` and `batch_length`: what is needed to find the next batch."""
LEADER_STAMP: Final = struct.Struct(">qii")
"""The fields that the leader writes: base offset, the batch length again, its leader epoch."""
_CRC: Final = struct.Struct(">I")

HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12
RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, a null key, a null value and no headers: one byte each."""
RECORDS_MAX: Final = 2**20
"""Limit on one compressed batch, and on all those of one request: a few KB can hold that many."""
MAGIC: Final = 2
MAGIC_POSITION: Final = 16
BATCH_LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD
_CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
ATTRIBUTES_LOW_POSITION: Final = 22
"""Position of the attributes byte that holds every bit in use."""
_MAX_TIMESTAMP_POSITION: Final = 35
assert BATCH_HEADER.size == HEADER_SIZE
assert BATCH_PREFIX.size == LOG_OVERHEAD
assert LEADER_STAMP.size == MAGIC_POSITION

NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1
"""The epoch that clients send; the leader overwrites it with its own."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
"""Attributes of a batch. The produce path tests them in place; others ask the header's properties."""


class Codec(enum.IntEnum):
    """Compression of the records of a batch (the lowest three attribute bits)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """The header of one batch, as encoded. Offsets are logical, sizes in bytes."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, the header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The last record's sequence; -1 for a batch without one."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return increment(self.base_sequence, self.last_offset_delta)

    @property
    def has_producer_id(self) -> bool:
        """Any negative id means: not idempotent."""
        return self.producer_id >= 0

    @property
    def codec_id(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def newest_record_ms(self) -> int:
        """The newest record's timestamp; `NO_TIMESTAMP` for a batch that compaction has emptied."""
        return self.max_timestamp if self.record_count else NO_TIMESTAMP

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is the time from which on compaction removes tombstones (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON_BIT)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Reads the header at `position`.

    Raises `DecodeError` when fewer than 61 bytes are left there.
    """
    try:
        return BatchHeader._make(BATCH_HEADER.unpack_from(buffer, position))
    except struct.error as error:
        left = len(buffer) - position
        raise DecodeError(f"a batch header takes {HEADER_SIZE} bytes, {left} are left") from error


def walk(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yields `(position, header)` of each complete batch; stops quietly before an incomplete one.

    Raises `DecodeError` at a batch of another magic or with an impossible length. CRCs are not
    checked.
    """
    position = 0
    total = len(buffer)
    while total - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        if header.magic != MAGIC:
            raise DecodeError(f"batch at position {position} has magic {header.magic}, not {MAGIC}")
        if header.batch_length < BATCH_LENGTH_MIN:
            raise DecodeError(
                f"batch at position {position} claims {header.batch_length} bytes, "
                f"at least {BATCH_LENGTH_MIN} are needed"
            )
        if position + header.size > total:
            return
        yield position, header
        position += header.size


def compute_crc(batch: Buffer) -> int:
    """CRC-32C of one whole batch, over the range that the header's `crc` covers."""
    return crc32c(memoryview(batch)[ATTRIBUTES_POSITION:])


def seal_batch(header: BatchHeader, records: Buffer) -> bytes:
    """One whole batch: `header` with the correct length and CRC, and the (compressed) `records`."""
    base_offset, _, leader_epoch, magic, _, *others = header
    length = BATCH_LENGTH_MIN + len(records)
    unsealed = BATCH_HEADER.pack(base_offset, length, leader_epoch, magic, 0, *others)
    crc = crc32c(records, crc32c(unsealed[ATTRIBUTES_POSITION:]))
    sealed = unsealed[:_CRC_POSITION] + _CRC.pack(crc) + unsealed[ATTRIBUTES_POSITION:]
    return b"".join((sealed, records))  # the records are copied once


def leader_stamp(header: BatchHeader, base_offset: int, leader_epoch: int) -> bytes:
    """The 16 bytes that replace the first 16 of a batch when a leader appends it."""
    return LEADER_STAMP.pack(base_offset, header.batch_length, leader_epoch)


def with_log_append_time(batch: Buffer, header: BatchHeader, now_ms: int) -> bytearray:
    """A copy of the batch with log append time `now_ms`: attribute bit, max timestamp, new CRC."""
    copy = bytearray(batch)
    struct.pack_into(">h", copy, ATTRIBUTES_POSITION, header.attributes | LOG_APPEND_TIME_BIT)
    struct.pack_into(">q", copy, _MAX_TIMESTAMP_POSITION, now_ms)
    _CRC.pack_into(copy, _CRC_POSITION, compute_crc(copy))
    return copy
