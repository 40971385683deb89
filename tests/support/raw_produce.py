"""Produce requests and responses of versions 3 to 13, packed and read by hand.

The oracle's side: knows nothing of `protocol/`, and checks nothing, so that any invalid request can
be sent. Before version 9 the encoding is classic, from there on flexible; version 13 names topics
by their id.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from typing import NamedTuple

PRODUCE = 0
_FLEXIBLE_SINCE = 9
_TOPIC_IDS_SINCE = 13
NO_TAGS = b"\0"


def is_flexible(version: int) -> bool:
    return version >= _FLEXIBLE_SINCE


class PartitionData(NamedTuple):
    """The data for one partition. `topic` is the id from version 13 on."""

    topic: str | uuid.UUID
    partition: int
    records: bytes | None


class PartitionAnswer(NamedTuple):
    """One row of a produce response; -1 also represents fields that the version lacks."""

    topic: str | uuid.UUID
    partition: int
    error: int
    base_offset: int
    log_append_time: int
    log_start_offset: int


def encode_produce(
    version: int,
    acks: int,
    rows: Sequence[PartitionData],
    *,
    timeout_ms: int = 10_000,
    transactional_id: str | None = None,
) -> bytes:
    """The body of a produce request; rows of one topic stay together in the order given."""
    by_topic: dict[str | uuid.UUID, list[PartitionData]] = {}
    for row in rows:
        by_topic.setdefault(row.topic, []).append(row)
    flexible = is_flexible(version)
    parts = [
        _nullable_string(transactional_id, flexible=flexible),
        struct.pack(">hi", acks, timeout_ms),
    ]
    parts.append(_array_length(len(by_topic), flexible=flexible))
    for topic, topic_rows in by_topic.items():
        parts += [
            _topic(topic, flexible=flexible),
            _array_length(len(topic_rows), flexible=flexible),
        ]
        for row in topic_rows:
            parts += [struct.pack(">i", row.partition), _bytes(row.records, flexible=flexible)]
            parts += [NO_TAGS] * flexible
        parts += [NO_TAGS] * flexible
    parts += [NO_TAGS] * flexible
    return b"".join(parts)


def decode_produce(version: int, body: bytes) -> list[PartitionAnswer]:
    """The rows of a produce response of versions 3 to 13."""
    reader = Reader(body, flexible=is_flexible(version))
    answers: list[PartitionAnswer] = []
    for _ in range(reader.array_length()):
        topic = reader.uuid() if version >= _TOPIC_IDS_SINCE else reader.string()
        answers += [_read_row(reader, version, topic) for _ in range(reader.array_length())]
        reader.tags()
    return answers


def _read_row(reader: Reader, version: int, topic: str | uuid.UUID) -> PartitionAnswer:
    partition, error, base_offset, log_append_time = reader.unpack(">ihqq")
    log_start_offset = reader.unpack(">q")[0] if version >= 5 else -1
    if version >= 8:
        for _ in range(reader.array_length()):
            reader.unpack(">i")
            reader.string()
            reader.tags()
        reader.string()
    reader.tags()
    return PartitionAnswer(topic, partition, error, base_offset, log_append_time, log_start_offset)


class Reader:
    """Primitive fields one after the other, in the classic or the flexible encoding."""

    def __init__(self, body: bytes, *, flexible: bool) -> None:
        self._body = body
        self._position = 0
        self._flexible = flexible

    def unpack(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(layout, self._body, self._position)
        self._position += struct.calcsize(layout)
        return values

    def unsigned_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._body[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def array_length(self) -> int:
        return self.unsigned_varint() - 1 if self._flexible else self.unpack(">i")[0]

    def string(self) -> str:
        """Null reads as an empty string."""
        size = self.unsigned_varint() - 1 if self._flexible else self.unpack(">h")[0]
        return self._take(max(size, 0)).decode()

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self._take(16))

    def tags(self) -> None:
        """Skips tagged fields; there are none in the classic encoding."""
        for _ in range(self.unsigned_varint() if self._flexible else 0):
            self.unsigned_varint()
            self._take(self.unsigned_varint())

    def _take(self, size: int) -> bytes:
        self._position += size
        return self._body[self._position - size : self._position]


def unsigned_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _array_length(count: int, *, flexible: bool) -> bytes:
    return unsigned_varint(count + 1) if flexible else struct.pack(">i", count)


def _nullable_string(text: str | None, *, flexible: bool) -> bytes:
    """A short string, at most 126 bytes, or null."""
    data = b"" if text is None else text.encode()
    size = -1 if text is None else len(data)
    return (bytes([size + 1]) if flexible else struct.pack(">h", size)) + data


def _topic(topic: str | uuid.UUID, *, flexible: bool) -> bytes:
    if isinstance(topic, uuid.UUID):
        return topic.bytes
    name = topic.encode()
    return (unsigned_varint(len(name) + 1) if flexible else struct.pack(">h", len(name))) + name


def _bytes(data: bytes | None, *, flexible: bool) -> bytes:
    if data is None:
        return b"\0" if flexible else struct.pack(">i", -1)
    return (unsigned_varint(len(data) + 1) if flexible else struct.pack(">i", len(data))) + data
