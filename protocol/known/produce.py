"""Produce requests that begin as one that the connection sent before.

A producer repeats every byte of a request's body up to the first partition: transactional id, acks, timeout, topic, number of
partitions.
Equals `decode_produce_request`, which reads what is not known, and says what is wrong with it; but a request of many
elements is to be read beside the event loop.
`tests/protocol/known/test_produce.py` compares both.
"""

from __future__ import annotations

import struct
from typing import Final

from echoless.protocol.errors import DecodeError
from echoless.protocol.framing import Frame
from echoless.protocol.known.memory import SeenBytes
from echoless.protocol.produce_request import (
    COPIED_MAX,
    FLEXIBLE_FROM,
    TOPIC_IDS_FROM,
    PartitionRecords,
    ProduceRequest,
    TopicRecords,
    decode_produce_request,
)
from echoless.protocol.request_fields import ELEMENTS_AT_ONCE, compact_size

_read_index_size: Final = struct.Struct(">iBB").unpack_from
"""A partition's index, and the first two bytes of what follows."""
_INDEX_SIZE: Final = 4
_INDEX_AND_SIZE: Final = 6
"""The bytes of an index and of the usual size, before the records."""
_TOPIC_COUNT: Final = 7
"""The position of the number of topics in a body without a transactional id, after acks and timeout; that id shifts it."""
_TOPIC_SIZE: Final = 8
_TOPIC_NAME: Final = 9
_ONE_TOPIC: Final = 2
"""The size of an array of one, as compact arrays have it."""
_NO_TAGS_TWICE: Final = b"\0\0"
_NO_TAGS_THRICE: Final = b"\0\0\0"
_new: Final = tuple.__new__
"""Makes a named tuple in half the time of calling its class; see `protocol/known/__init__.py`."""


def read_produce_request(
    seen: SeenBytes, version: int, frame: Frame, position: int
) -> ProduceRequest:
    """The request whose body starts at `position`. Raises `DecodeError`, for many elements `ManyElementsError`."""
    if not FLEXIBLE_FROM <= version < TOPIC_IDS_FROM:
        return decode_produce_request(version, frame, position, ELEMENTS_AT_ONCE)
    head = b""
    try:
        shift = (
            position + (frame[position] or 1) - 1
        )  # a transactional id of so many bytes comes first
        after = shift + _TOPIC_NAME + frame[shift + _TOPIC_SIZE]
        head = frame[position:after] if type(frame) is bytes else bytes(frame[position:after])
        known = seen.produces.get(head)
        if known is not None:
            transactional_id, acks, timeout_ms, topic, partition_count = known
            partitions = _only_row(frame, after) if partition_count == 1 else None
            if partitions is None:
                partitions = _rows(frame, after, partition_count)
            if partitions is not None:
                topics = [_new(TopicRecords, (topic, partitions))]
                return _new(ProduceRequest, (transactional_id, acks, timeout_ms, topics))
    except (struct.error, IndexError, DecodeError):
        pass  # the general way says what is wrong
    request = decode_produce_request(version, frame, position, ELEMENTS_AT_ONCE)
    _note(seen, head, request)
    return request


def _only_row(frame: Frame, position: int) -> list[PartitionRecords] | None:
    """The only row of a request without tagged fields, if its size has two bytes; None if it may be anything else."""
    index, first, second = _read_index_size(frame, position)
    begin = position + _INDEX_AND_SIZE
    end = begin + (first & 0x7F | second << 7) - 1
    if second < 0x80 <= first and begin <= end and frame[end:] == _NO_TAGS_THRICE:
        records = frame[begin:end] if end - begin < COPIED_MAX else memoryview(frame)[begin:end]
        return [_new(PartitionRecords, (index, records))]
    return None


def _rows(frame: Frame, position: int, count: int) -> list[PartitionRecords] | None:
    """The rows that end a request without tagged fields; None if it may be anything else.

    Raises `IndexError`, `struct.error` or `DecodeError` if the frame ends before.
    """
    rows = []
    for _ in range(count):
        index, first, second = _read_index_size(frame, position)
        if second < 0x80 <= first:
            begin, size = position + _INDEX_AND_SIZE, (first & 0x7F | second << 7) - 1
        else:
            size, begin = compact_size(frame, position + _INDEX_SIZE)
        position = begin + size
        if size < 0 or frame[position]:  # null, or tagged fields
            return None
        records = frame[begin:position] if size < COPIED_MAX else memoryview(frame)[begin:position]
        rows.append(_new(PartitionRecords, (index, records)))
        position += 1
    return rows if frame[position:] == _NO_TAGS_TWICE else None


def _note(seen: SeenBytes, head: bytes, request: ProduceRequest) -> None:
    """Remembers what `head` means, if it is the bytes up to the first partition."""
    if not head or head[0] >= 0x80:
        return
    shift = (head[0] or 1) - 1
    if (
        len(head) <= shift + _TOPIC_NAME
        or head[shift + _TOPIC_COUNT] != _ONE_TOPIC
        or head[shift + _TOPIC_SIZE] >= 0x80
        or len(head) != shift + _TOPIC_NAME + head[shift + _TOPIC_SIZE]
        or head[-1] >= 0x80
    ):
        return
    transactional_id, acks, timeout_ms, ((name, rows),) = request
    assert isinstance(name, str)
    meaning = transactional_id, acks, timeout_ms, name, len(rows)
    seen.note(seen.produces, head, len(head), meaning)
