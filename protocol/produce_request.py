"""The Produce request, read by hand: its records stay in place in the frame.

kio would copy every batch out of the frame, and needs the claimed counts walked first
(`request_walk.py`); together that costs more than the de-duplication. Layout by version
(`docs/protocol/produce.md`): v3-8 classic, v9 flexible, v13 names topics by id.
`tests/protocol/test_produce_request.py` compares every version with kio.

Memory is bounded: an element takes at least some bytes of the frame, and there are at most
`ELEMENTS_MAX` of them.
"""

from __future__ import annotations

import struct
import uuid
from typing import Final, NamedTuple

from echoless.protocol.errors import DecodeError
from echoless.protocol.framing import Frame
from echoless.protocol.headers import skip_tagged_fields
from echoless.protocol.request_fields import (
    ELEMENTS_MAX,
    add_elements,
    compact_size,
    field_bytes,
)

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INDEX_SIZE: Final = struct.Struct(">ii")
_UUID_SIZE: Final = 16
FLEXIBLE_FROM: Final = 9
TOPIC_IDS_FROM: Final = 13
_read_index_size: Final = struct.Struct(">iBB").unpack_from
"""A partition's index, and the first two bytes of what follows."""
COPIED_MAX: Final = 4096
"""Records of fewer bytes are copied out of the frame, which is faster than a view of them."""


class PartitionRecords(NamedTuple):
    """The batch for one partition. `records` is a view of the frame, or a copy if they are few bytes."""

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


def decode_produce_request(
    version: int, frame: Frame, position: int, elements_max: int = ELEMENTS_MAX
) -> ProduceRequest:
    """The request whose body starts at `position`.

    Raises `DecodeError`: a `ManyElementsError` if it has more than `elements_max` topics and partitions.
    """
    try:
        if version < FLEXIBLE_FROM:
            return _decode_classic(frame, position, elements_max)
        has_ids = version >= TOPIC_IDS_FROM
        return _decode_flexible(frame, position, elements_max, has_ids=has_ids)
    except (struct.error, IndexError) as error:
        raise DecodeError(
            f"the produce request ends after {len(frame)} bytes, in mid field"
        ) from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"a name in the produce request is not UTF-8: {error}") from error


# The encodings are written out flat: a method call for each field would double the time.


def _decode_classic(frame: Frame, position: int, elements_max: int) -> ProduceRequest:
    """Versions 3 to 8: sizes are int16 for strings and int32 for the rest, -1 for null."""
    (size,) = _INT16.unpack_from(frame, position)
    position += 2
    transactional_id = None
    if size != -1:
        transactional_id = str(field_bytes(frame, position, size), "utf-8")
        position += size
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    (topic_count,) = _INT32.unpack_from(frame, position + 6)
    position += 10
    elements = add_elements(frame, position, topic_count, 0, elements_max)
    topics = []
    for _ in range(topic_count):
        (size,) = _INT16.unpack_from(frame, position)
        name = str(field_bytes(frame, position + 2, size), "utf-8")
        position += 2 + size
        (partition_count,) = _INT32.unpack_from(frame, position)
        position += 4
        elements = add_elements(frame, position, partition_count, elements, elements_max)
        partitions = []
        for _ in range(partition_count):
            index, size = _INDEX_SIZE.unpack_from(frame, position)
            position += 8
            records = None
            if size != -1:
                records = field_bytes(frame, position, size)
                position += size
            partitions.append(PartitionRecords(index, records))
        topics.append(TopicRecords(name, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_flexible(
    frame: Frame, position: int, elements_max: int, *, has_ids: bool
) -> ProduceRequest:
    """From version 9 on: sizes are varints of one more, 0 for null; tagged fields end an entity.

    The usual sizes, of one or two bytes, and the usual absence of tagged fields are read in place.
    """
    end = len(frame)
    transactional_id = None
    size, position = compact_size(frame, position)
    if size != -1:
        transactional_id = str(field_bytes(frame, position, size), "utf-8")
        position += size
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    topic_count, position = compact_size(frame, position + 6)
    elements = add_elements(frame, position, topic_count, 0, elements_max)
    topics: list[TopicRecords] = []
    for _ in range(topic_count):
        topic: str | uuid.UUID
        if has_ids:
            topic = uuid.UUID(bytes=bytes(field_bytes(frame, position, _UUID_SIZE)))
            position += _UUID_SIZE
        else:
            size, position = compact_size(frame, position)
            topic = str(field_bytes(frame, position, size), "utf-8")
            position += size
        partition_count, position = compact_size(frame, position)
        elements = add_elements(frame, position, partition_count, elements, elements_max)
        partitions: list[PartitionRecords] = []
        position = _read_partitions(frame, position, partition_count, partitions)
        if position < end and not frame[position]:
            position += 1
        else:
            position = skip_tagged_fields(frame, position)
        topics.append(TopicRecords(topic, partitions))
    skip_tagged_fields(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_partitions(
    frame: Frame, position: int, count: int, partitions: list[PartitionRecords]
) -> int:
    """Adds `count` partitions from `position` on; returns the position after them."""
    end = len(frame)
    for _ in range(count):
        index, first, second = _read_index_size(frame, position)
        if second < 0x80 <= first:
            begin, size = position + 6, (first & 0x7F | second << 7) - 1
        else:
            size, begin = compact_size(frame, position + 4)
        position = begin + size
        if size >= COPIED_MAX:
            records: Frame | None = memoryview(frame)[begin:position]
        elif size >= 0:
            records = frame[begin:position]
        else:
            records, position = None, begin
        if position >= end:
            field_bytes(frame, begin, position - begin)  # raises for bytes that are not there
        if position < end and not frame[position]:
            position += 1
        else:
            position = skip_tagged_fields(frame, position)
        partitions.append(PartitionRecords(index, records))
    return position
