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
from typing import Final

from protocol.errors import DecodeError
from protocol.framing import Frame
from protocol.headers import skip_tagged_fields
from protocol.lean_named_tuple import NamedTuple
from protocol.request_fields import ELEMENTS_MAX, add_elements, compact_size, field_bytes

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INDEX_SIZE: Final = struct.Struct(">ii")
_UUID_SIZE: Final = 16
_FLEXIBLE_FROM: Final = 9
_TOPIC_IDS_FROM: Final = 13
_read_acks_timeout: Final = _ACKS_TIMEOUT.unpack_from
_read_int32: Final = _INT32.unpack_from
_new: Final = tuple.__new__
"""Makes a named tuple in a third of the time of calling its class."""
_COPIED_MAX: Final = 4096
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


def decode_produce_request(version: int, frame: Frame, position: int) -> ProduceRequest:
    """The request whose body starts at `position`. Raises `DecodeError`."""
    try:
        if version >= _FLEXIBLE_FROM:
            return _decode_flexible(frame, position, has_ids=version >= _TOPIC_IDS_FROM)
        return _decode_classic(frame, position)
    except (struct.error, IndexError) as error:
        raise DecodeError(
            f"the produce request ends after {len(frame)} bytes, in mid field"
        ) from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"a name in the produce request is not UTF-8: {error}") from error


# The two encodings are written out flat: a method call for each field would double the time.


def _decode_classic(frame: Frame, position: int) -> ProduceRequest:
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
    elements = add_elements(frame, position, topic_count, 0, ELEMENTS_MAX)
    topics = []
    for _ in range(topic_count):
        (size,) = _INT16.unpack_from(frame, position)
        name = str(field_bytes(frame, position + 2, size), "utf-8")
        position += 2 + size
        (partition_count,) = _INT32.unpack_from(frame, position)
        position += 4
        elements = add_elements(frame, position, partition_count, elements, ELEMENTS_MAX)
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


def _decode_flexible(  # noqa: C901, PLR0912, PLR0915 - flat, as said above
    frame: Frame, position: int, *, has_ids: bool
) -> ProduceRequest:
    """From version 9 on: sizes are varints of one more, 0 for null; tagged fields end an entity.

    The usual sizes, of one or two bytes, and the usual absence of tagged fields are read in place.
    """
    end = len(frame)
    transactional_id = None
    if frame[position]:
        size, position = compact_size(frame, position)
        if size != -1:
            transactional_id = str(field_bytes(frame, position, size), "utf-8")
            position += size
    else:
        position += 1
    acks, timeout_ms = _read_acks_timeout(frame, position)
    position += 6
    topic_count = frame[position] - 1
    if topic_count < 0x7F:
        position += 1
    else:
        topic_count, position = compact_size(frame, position)
    elements = topic_count
    if not 0 <= topic_count <= end - position or elements > ELEMENTS_MAX:
        add_elements(frame, position, topic_count, 0, ELEMENTS_MAX)  # raises
    topics = []
    for _ in range(topic_count):
        topic: str | uuid.UUID
        if has_ids:
            topic = uuid.UUID(bytes=bytes(field_bytes(frame, position, _UUID_SIZE)))
            position += _UUID_SIZE
        else:
            size = frame[position] - 1
            if size < 0x7F:
                position += 1
            else:
                size, position = compact_size(frame, position)
            begin, position = position, position + size
            if size < 0 or position > end:
                field_bytes(frame, begin, size)  # raises
            topic = str(frame[begin:position], "utf-8")
        partition_count = frame[position] - 1
        if partition_count < 0x7F:
            position += 1
        else:
            partition_count, position = compact_size(frame, position)
        elements += partition_count
        if not 0 <= partition_count <= end - position or elements > ELEMENTS_MAX:
            before = elements - partition_count
            add_elements(frame, position, partition_count, before, ELEMENTS_MAX)  # raises
        partitions = []
        for _ in range(partition_count):
            (index,) = _read_int32(frame, position)
            position += 4
            first = frame[position]
            if first >= 0x80 and (second := frame[position + 1]) < 0x80:
                size = (first & 0x7F | second << 7) - 1
                position += 2
            else:
                size, position = compact_size(frame, position)
            records = None
            if size != -1:
                begin, position = position, position + size
                if size < 0 or position > end:
                    field_bytes(frame, begin, size)  # raises
                whole = frame if size < _COPIED_MAX else memoryview(frame)
                records = whole[begin:position]
            if position < end and not frame[position]:
                position += 1
            else:
                position = skip_tagged_fields(frame, position)
            partitions.append(_new(PartitionRecords, (index, records)))
        if position < end and not frame[position]:
            position += 1
        else:
            position = skip_tagged_fields(frame, position)
        topics.append(_new(TopicRecords, (topic, partitions)))
    if position >= end or frame[position]:
        skip_tagged_fields(frame, position)
    return _new(ProduceRequest, (transactional_id, acks, timeout_ms, topics))
