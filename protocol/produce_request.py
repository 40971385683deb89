"""The Produce request, read by hand: its records stay where they are in the frame.

kio would copy every batch out of the frame, and needs the claimed counts walked first
(`request_walk.py`); together that costs more than the de-duplication. Layout by version
(`dedup-spec.md` 5.1): v3-8 classic, v9 flexible, v13 names topics by id.
`tests/protocol/test_produce_request.py` compares every version with kio.

Memory is bounded: an element takes at least some bytes of the frame, and there are at most
`PARTITIONS_MAX` of them.
"""

from __future__ import annotations

import struct
import uuid
from typing import Final, NamedTuple

from protocol.errors import DecodeError
from protocol.framing import Frame
from protocol.headers import read_unsigned_varint, skip_tagged_fields

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_UUID_SIZE: Final = 16
_FLEXIBLE_FROM: Final = 9
_TOPIC_IDS_FROM: Final = 13
PARTITIONS_MAX: Final = 100_000
"""In one request, over all topics; the same bound as for every other request."""


class PartitionRecords(NamedTuple):
    """What is to be stored in one partition. `records` is a view of a large frame, bytes of a small one."""

    partition: int
    records: Frame | None


class TopicRecords(NamedTuple):
    topic: str | uuid.UUID
    """The id from v13 on, the name before."""
    partitions: list[PartitionRecords]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicRecords]


def decode_produce_request(version: int, frame: Frame, position: int) -> ProduceRequest:
    """The request whose body starts at `position`. Raises `DecodeError`."""
    reader = (
        _FlexibleReader(frame, position) if version >= _FLEXIBLE_FROM else _Reader(frame, position)
    )
    try:
        transactional_id = reader.string()
        acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, reader.position)
        reader.position += _ACKS_TIMEOUT.size
        topics = [_topic(reader, version) for _ in range(reader.count())]
        reader.end_of_entity()
    except struct.error as error:
        raise DecodeError(
            f"the produce request ends after {len(frame)} bytes, in mid field"
        ) from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"a name in the produce request is not UTF-8: {error}") from error
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _topic(reader: _Reader, version: int) -> TopicRecords:
    topic: str | uuid.UUID | None
    topic = reader.uuid() if version >= _TOPIC_IDS_FROM else reader.string()
    if topic is None:
        raise DecodeError("a topic of the produce request has no name")
    partitions = []
    for _ in range(reader.count()):
        (index,) = _INT32.unpack_from(reader.frame, reader.position)
        reader.position += _INT32.size
        partitions.append(PartitionRecords(index, reader.bytes()))
        reader.end_of_entity()
    reader.end_of_entity()
    return TopicRecords(topic, partitions)


class _Reader:
    """A place in the frame, read in the classic encoding."""

    __slots__ = ("_elements", "frame", "position")

    def __init__(self, frame: Frame, position: int) -> None:
        self.frame = frame
        self.position = position
        self._elements = 0

    def _string_size(self) -> int:
        (size,) = _INT16.unpack_from(self.frame, self.position)
        self.position += _INT16.size
        return int(size)

    def _size(self) -> int:
        """Of an array or of bytes; -1 for null."""
        (size,) = _INT32.unpack_from(self.frame, self.position)
        self.position += _INT32.size
        return int(size)

    def end_of_entity(self) -> None:
        """Nothing follows the fields of an entity."""

    def string(self) -> str | None:
        size = self._string_size()
        return None if size == -1 else str(self._take(size), "utf-8")

    def bytes(self) -> Frame | None:
        size = self._size()
        return None if size == -1 else self._take(size)

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=bytes(self._take(_UUID_SIZE)))

    def count(self) -> int:
        """Elements of an array, each of which takes at least one byte."""
        count = self._size()
        if count < 0 or count > len(self.frame) - self.position:
            raise DecodeError(f"an array of {count} elements in {len(self.frame)} bytes")
        self._elements += count
        if self._elements > PARTITIONS_MAX:
            raise DecodeError(f"more than {PARTITIONS_MAX} array elements in one request")
        return count

    def _take(self, size: int) -> Frame:
        begin = self.position
        end = begin + size
        if size < 0 or end > len(self.frame):
            raise DecodeError(f"a field of {size} bytes at {begin} of {len(self.frame)}")
        self.position = end
        return self.frame[begin:end]


class _FlexibleReader(_Reader):
    """The compact encoding: sizes are varints of one more, and tagged fields end an entity."""

    __slots__ = ()

    def _size(self) -> int:
        frame, position = self.frame, self.position
        if position < len(frame) and frame[position] < 0x80:  # nearly always
            self.position = position + 1
            return frame[position] - 1
        size, self.position = read_unsigned_varint(frame, position)
        return size - 1

    _string_size = _size

    def end_of_entity(self) -> None:
        self.position = skip_tagged_fields(self.frame, self.position)
