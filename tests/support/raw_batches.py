"""Record batches of magic 2 written field by field, so that a test can also write invalid ones.

The oracle's side: own struct code, nothing from `protocol/`. Every field of the header is free;
`crc` and `batch_length` are computed unless a test sets them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from crc32c import crc32c

_BEFORE_CRC = struct.Struct(">qiib")
_COVERED = struct.Struct(">hiqqqhii")
_LENGTH_PREFIX = 12

LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40


def varint(value: int) -> bytes:
    """Zig-zag, base 128, least significant group first."""
    encoded = (value << 1) ^ (value >> 63)
    out = bytearray()
    while encoded & ~0x7F:
        out.append((encoded & 0x7F) | 0x80)
        encoded >>= 7
    out.append(encoded)
    return bytes(out)


def record(
    offset_delta: int, value: bytes | None, *, key: bytes | None = None, time: int = 0
) -> bytes:
    """One record without headers; `time` is its timestamp delta in ms."""
    fields = (b"\0", varint(time), varint(offset_delta), _nullable(key), _nullable(value), b"\0")
    body = b"".join(fields)
    return varint(len(body)) + body


def _nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def records(values: Sequence[bytes | None], keys: Sequence[bytes] = ()) -> bytes:
    """Consecutive records of one time."""
    return b"".join(
        record(delta, value, key=keys[delta] if keys else None)
        for delta, value in enumerate(values)
    )


@dataclass(slots=True, kw_only=True)
class Batch:
    """One batch, field by field. `payload` are the records, compressed or not."""

    payload: bytes
    record_count: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    last_offset_delta: int = field(default=-(2**31))
    """record_count - 1 unless a test sets it."""
    base_timestamp: int = 0
    max_timestamp: int = 0
    attributes: int = 0
    base_offset: int = 0
    partition_leader_epoch: int = -1
    magic: int = 2
    crc: int | None = None
    batch_length: int | None = None

    def __post_init__(self) -> None:
        if self.last_offset_delta == -(2**31):
            self.last_offset_delta = self.record_count - 1

    def encode(self) -> bytes:
        covered = self._covered() + self.payload
        length = self.batch_length
        if length is None:
            length = _BEFORE_CRC.size + 4 - _LENGTH_PREFIX + len(covered)
        crc = crc32c(covered) if self.crc is None else self.crc
        before = _BEFORE_CRC.pack(self.base_offset, length, self.partition_leader_epoch, self.magic)
        return before + struct.pack(">I", crc) + covered

    def _covered(self) -> bytes:
        return _COVERED.pack(
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )


def plain_batch(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes] = (),
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp: int = 1,
) -> Batch:
    """A well-formed uncompressed batch whose records share one timestamp (ms)."""
    return Batch(
        payload=records(values, keys),
        record_count=len(values),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """One batch from a log: the fields that comparisons need, and all its bytes."""

    base_offset: int
    partition_leader_epoch: int
    crc_is_right: bool
    attributes: int
    max_timestamp: int
    data: bytes

    def masked(self, *, log_append_time: bool) -> bytes:
        """The bytes, with zeros in the fields that a broker writes.

        These are the leader epoch and, on a topic with log-append time, the time and the CRC.
        """
        masked = bytearray(self.data)
        masked[12:16] = b"\0" * 4
        if log_append_time:
            masked[17:21] = b"\0" * 4
            masked[22] &= ~LOG_APPEND_TIME
            masked[35:43] = b"\0" * 8
        return bytes(masked)


def split_log(data: bytes) -> list[StoredBatch]:
    """The complete batches of a log or of a fetch response; an incomplete last one is left out."""
    found: list[StoredBatch] = []
    position = 0
    while position + 61 <= len(data):
        base_offset, length, epoch, _ = _BEFORE_CRC.unpack_from(data, position)
        batch = data[position : position + _LENGTH_PREFIX + length]
        if len(batch) < _LENGTH_PREFIX + length:
            break
        (crc,) = struct.unpack_from(">I", batch, 17)
        attributes, _, _, max_timestamp, *_ = _COVERED.unpack_from(batch, 21)
        found.append(
            StoredBatch(
                base_offset=base_offset,
                partition_leader_epoch=epoch,
                crc_is_right=crc == crc32c(batch[21:]),
                attributes=attributes,
                max_timestamp=max_timestamp,
                data=batch,
            )
        )
        position += len(batch)
    return found
