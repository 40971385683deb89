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
from echoless.protocol.request_fields import ELEMENTS_MAX, add_elements, compact_size, field_bytes

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INDEX_SIZE: Final = struct.Struct(">ii")
_UUID_SIZE: Final = 16
_FLEXIBLE_FROM: Final = 9
_TOPIC_IDS_FROM: Final = 13
_read_index_size: Final = struct.Struct(">iBB").unpack_from
"""A partition's index, and the first two bytes of what follows."""
_new: Final = tuple.__new__
"""Makes a named tuple in a third of the time of calling its class."""
_COPIED_MAX: Final = 4096
"""Records of fewer bytes are copied out of the frame, which is faster than a view of them."""
_ONE_TOPIC: Final = 2
"""The size of an array of one, as compact arrays have it."""
_NO_TAGS_TWICE: Final = b"\0\0"
_NO_TAGS_THRICE: Final = b"\0\0\0"
_INDEX_AND_SIZE: Final = 6
"""The bytes of an index and of the usual size, before the records."""
_TOPIC_COUNT: Final = 7
"""The position of the number of topics in a body without a transactional id, after acks and timeout."""
_TOPIC_SIZE: Final = 8
_TOPIC_NAME: Final = 9
_KNOWN_HEADS_MAX: Final = 1000
_KNOWN_HEAD_BYTES_MAX: Final = 300
_KNOWN_HEADS: Final[dict[bytes, tuple[int, int, str, int]]] = {}
"""The beginnings of bodies that were read before, up to the first partition: acks, timeout, topic, number of partitions.

Equal bytes have equal meanings, no matter which client sends them, so nothing here ever becomes wrong. There is one for each way
in which clients list a topic; all are forgotten when they are too many.
"""


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
        if version < _FLEXIBLE_FROM:
            return _decode_classic(frame, position)
        if version >= _TOPIC_IDS_FROM:
            return _decode_any_flexible(frame, position, has_ids=True)
        # Nearly always no transaction and one topic: a client repeats all bytes up to the first partition.
        after = position + _TOPIC_NAME + frame[position + _TOPIC_SIZE]
        head = frame[position:after] if type(frame) is bytes else bytes(frame[position:after])
        known = _KNOWN_HEADS.get(head)
        if known is None:
            return _decode_first(frame, position, head)
        acks, timeout_ms, topic, partition_count = known
        if after + partition_count > len(frame):
            return _decode_any_flexible(frame, position, has_ids=False)  # raises
        if partition_count == 1:
            row = _usual_row(frame, after)
            if row is not None:
                topics = [_new(TopicRecords, (topic, [row]))]
                return _new(ProduceRequest, (None, acks, timeout_ms, topics))
        partitions: list[PartitionRecords] = []
        position = _read_partitions(frame, after, partition_count, partitions)
        if frame[position:] != _NO_TAGS_TWICE:
            skip_tagged_fields(frame, skip_tagged_fields(frame, position))
        topics = [_new(TopicRecords, (topic, partitions))]
        return _new(ProduceRequest, (None, acks, timeout_ms, topics))
    except (struct.error, IndexError) as error:
        raise DecodeError(
            f"the produce request ends after {len(frame)} bytes, in mid field"
        ) from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"a name in the produce request is not UTF-8: {error}") from error


# The encodings are written out flat: a method call for each field would double the time.


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


def _decode_first(frame: Frame, position: int, head: bytes) -> ProduceRequest:
    """The request, whose `head` has not been seen before; remembers what it means."""
    request = _decode_any_flexible(frame, position, has_ids=False)
    _note_head(head, request)
    return request


def _usual_row(frame: Frame, position: int) -> PartitionRecords | None:
    """The only row of a request without tagged fields, if its size has two bytes; None: only `_read_partitions` can tell."""
    index, first, second = _read_index_size(frame, position)
    begin = position + _INDEX_AND_SIZE
    end = begin + (first & 0x7F | second << 7) - 1
    if second < 0x80 <= first and begin <= end and frame[end:] == _NO_TAGS_THRICE:
        records = frame[begin:end] if end - begin < _COPIED_MAX else memoryview(frame)[begin:end]
        return _new(PartitionRecords, (index, records))
    return None


def _note_head(head: bytes, request: ProduceRequest) -> None:
    """Remembers what the bytes up to the first partition mean, if they are those."""
    if (
        head[0]  # a transactional id
        or head[_TOPIC_COUNT] != _ONE_TOPIC
        or head[_TOPIC_SIZE] >= 0x80
        or len(head) != _TOPIC_NAME + head[_TOPIC_SIZE]
        or head[-1] >= 0x80
        or len(head) > _KNOWN_HEAD_BYTES_MAX
    ):
        return
    if len(_KNOWN_HEADS) >= _KNOWN_HEADS_MAX:
        _KNOWN_HEADS.clear()
    ((name, rows),) = request.topics
    assert isinstance(name, str)
    _KNOWN_HEADS[head] = (request.acks, request.timeout_ms, name, len(rows))


def _decode_any_flexible(frame: Frame, position: int, *, has_ids: bool) -> ProduceRequest:
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
    elements = add_elements(frame, position, topic_count, 0, ELEMENTS_MAX)
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
        elements = add_elements(frame, position, partition_count, elements, ELEMENTS_MAX)
        partitions: list[PartitionRecords] = []
        position = _read_partitions(frame, position, partition_count, partitions)
        if position < end and not frame[position]:
            position += 1
        else:
            position = skip_tagged_fields(frame, position)
        topics.append(_new(TopicRecords, (topic, partitions)))
    skip_tagged_fields(frame, position)
    return _new(ProduceRequest, (transactional_id, acks, timeout_ms, topics))


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
        if size >= _COPIED_MAX:
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
        partitions.append(_new(PartitionRecords, (index, records)))
    return position
