"""OffsetCommit, read and packed by hand: with kio that cost more than storing the offsets.

Request, by version: group, generation i32, member; v2-4 retention time i64; v7 instance id; topics, each with its
partitions. A partition: index i32, offset i64, v6 leader epoch i32, metadata. v8 is flexible; v10 names topics by id.
Response: v3 throttle time i32; topics with their partitions: index i32, error code i16.
`tests/protocol/test_offset_commit.py` compares every version with kio. Pure.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Collection
from typing import Final, NamedTuple

from echoless.protocol.errors import DecodeError
from echoless.protocol.framing import Frame
from echoless.protocol.headers import NO_TAGS, skip_tagged_fields
from echoless.protocol.request_fields import (
    ELEMENTS_MAX,
    add_elements,
    array_size,
    field_bytes,
    nullable_string,
    refusing_cut_frames,
    string,
)
from echoless.protocol.state_records.fields import pack_size, pack_string

_RETENTION: Final = range(2, 5)
_THROTTLE_TIME_FROM, _LEADER_EPOCHS_FROM, _INSTANCE_IDS_FROM = 3, 6, 7
_FLEXIBLE_FROM, _TOPIC_IDS_FROM = 8, 10
NO_RETENTION: Final = -1
NO_LEADER_EPOCH: Final = -1
_RETENTION_MS_MAX: Final = (2**63 - 1) // 1000
"""kio's bound, which counts in microseconds: with more, the time at which the offset expires might fit no record."""

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_OFFSET: Final = struct.Struct(">iq")
_OFFSET_AND_EPOCH: Final = struct.Struct(">iqi")
_ROW: Final = struct.Struct(">ih")
_FLEXIBLE_ROW: Final = struct.Struct(">ihx")
_UUID_SIZE: Final = 16
_NO_ID: Final = bytes(_UUID_SIZE)
_NOT_THROTTLED: Final = bytes(4)


class OffsetPartition(NamedTuple):
    """The offset of a partition."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class OffsetTopic(NamedTuple):
    topic: str | uuid.UUID
    """The id from v10 on, the name before; the id of zeros is an empty name."""
    partitions: tuple[OffsetPartition, ...]


class OffsetCommitRequest(NamedTuple):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: tuple[OffsetTopic, ...]


def _decode(version: int, frame: Frame, position: int) -> OffsetCommitRequest:
    flexible = version >= _FLEXIBLE_FROM
    group_id, position = string(frame, position, flexible=flexible)
    (generation_id,) = _INT32.unpack_from(frame, position)
    member_id, position = string(frame, position + 4, flexible=flexible)
    instance_id, retention_ms = None, NO_RETENTION
    if version >= _INSTANCE_IDS_FROM:
        instance_id, position = nullable_string(frame, position, flexible=flexible)
    elif version in _RETENTION:
        retention_ms, position = _retention(frame, position), position + 8
    topics, position = _topics(version, frame, position)
    if flexible:
        skip_tagged_fields(frame, position)
    return OffsetCommitRequest(
        group_id, generation_id, member_id, instance_id, retention_ms, topics
    )


decode_offset_commit_request: Final = refusing_cut_frames("offset_commit", _decode)
"""The request whose body starts at a position. Raises `DecodeError`."""


def _retention(frame: Frame, position: int) -> int:
    (retention_ms,) = _INT64.unpack_from(frame, position)
    if abs(retention_ms) > _RETENTION_MS_MAX:
        raise DecodeError(
            f"a retention time of {retention_ms} ms; at most {_RETENTION_MS_MAX} is read"
        )
    return int(retention_ms)


def _topics(version: int, frame: Frame, position: int) -> tuple[tuple[OffsetTopic, ...], int]:
    flexible = version >= _FLEXIBLE_FROM
    topic_count, position = array_size(frame, position, flexible=flexible)
    elements = add_elements(frame, position, topic_count, 0, ELEMENTS_MAX)
    topics = []
    for _ in range(topic_count):
        topic: str | uuid.UUID
        if version >= _TOPIC_IDS_FROM:
            packed = bytes(field_bytes(frame, position, _UUID_SIZE))
            topic = "" if packed == _NO_ID else uuid.UUID(bytes=packed)
            position += _UUID_SIZE
        else:
            topic, position = string(frame, position, flexible=flexible)
        count, position = array_size(frame, position, flexible=flexible)
        elements = add_elements(frame, position, count, elements, ELEMENTS_MAX)
        rows, position = _partitions(version, frame, position, count)
        if flexible:
            position = skip_tagged_fields(frame, position)
        topics.append(OffsetTopic(topic, rows))
    return tuple(topics), position


def _partitions(
    version: int, frame: Frame, position: int, count: int
) -> tuple[tuple[OffsetPartition, ...], int]:
    flexible = version >= _FLEXIBLE_FROM
    layout = _OFFSET_AND_EPOCH if version >= _LEADER_EPOCHS_FROM else _OFFSET
    rows = []
    for _ in range(count):
        index, offset, *epoch = layout.unpack_from(frame, position)
        metadata, position = nullable_string(frame, position + layout.size, flexible=flexible)
        if flexible:
            position = skip_tagged_fields(frame, position)
        leader_epoch = epoch[0] if epoch else NO_LEADER_EPOCH
        rows.append(OffsetPartition(index, offset, leader_epoch, metadata))
    return tuple(rows), position


def encode_offset_commit_response(
    version: int,
    topics: Collection[tuple[str | uuid.UUID, Collection[tuple[int, int]]]],
) -> bytes:
    """The body of the response: each topic as the request names it, with partitions and error codes."""
    flexible = version >= _FLEXIBLE_FROM
    pack_row = _FLEXIBLE_ROW.pack if flexible else _ROW.pack
    parts = [_NOT_THROTTLED] if version >= _THROTTLE_TIME_FROM else []
    parts.append(pack_size(len(topics), flexible=flexible))
    for topic, rows in topics:
        if version >= _TOPIC_IDS_FROM:
            parts.append(topic.bytes if isinstance(topic, uuid.UUID) else _NO_ID)
        else:
            assert isinstance(topic, str)
            parts.append(pack_string(topic, flexible=flexible))
        parts.append(pack_size(len(rows), flexible=flexible))
        parts += [pack_row(index, code) for index, code in rows]
        if flexible:
            parts.append(NO_TAGS)
    if flexible:
        parts.append(NO_TAGS)
    return b"".join(parts)
