"""The Fetch request, read by hand: with kio it cost more than reading the records.

Layout by version: v4-14 begin with the replica id; v5 adds the follower's log start offset; v7 the session
and the topics that it forgets; v9 the leader epoch that the client knows; v11 the rack; v12 is flexible and
adds the epoch of the last batch; v13 names topics by id. The replica id, the follower's log start offset, the
rack and the tagged fields are skipped: followers replicate over the native port.
`tests/protocol/test_fetch_request.py` compares every version with kio.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Final, NamedTuple

from protocol.errors import DecodeError
from protocol.framing import Frame
from protocol.headers import skip_tagged_fields
from protocol.request_fields import ELEMENTS_MAX, add_elements, compact_size, field_bytes

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_UUID_SIZE: Final = 16
_RACK_FROM, _FLEXIBLE_FROM, _TOPIC_IDS_FROM = 11, 12, 13
NO_EPOCH: Final = -1
"""The leader epoch of a client that does not give one: any is accepted."""
NO_SESSION_EPOCH: Final = -1
"""The session epoch of a request outside any session."""


class FetchPartition(NamedTuple):
    """A partition of the request."""

    partition: int
    offset: int
    bytes_max: int
    leader_epoch: int = NO_EPOCH
    """The leader epoch that the client knows."""
    last_fetched_epoch: int = NO_EPOCH
    """The epoch of the last batch that the fetcher holds."""


class FetchTopic(NamedTuple):
    topic: str | uuid.UUID
    """The id from v13 on, the name before."""
    partitions: list[FetchPartition]


class FetchRequest(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    bytes_max: int
    isolation_level: int
    session_epoch: int
    topics: list[FetchTopic]


class _Layout(NamedTuple):
    """The fields of fixed size in one version."""

    head: struct.Struct
    """From the maximum wait to the session epoch."""
    partition: struct.Struct
    make: Callable[..., FetchPartition]
    """Takes the fields of `partition`."""


def _layout(version: int) -> _Layout:
    head = ">" + ("4x" if version < 15 else "") + ("iiib4xi" if version >= 7 else "iiib")
    if version >= 12:
        return _Layout(struct.Struct(head), struct.Struct(">iiqi8xi"), _since_12)
    if version >= 9:
        return _Layout(struct.Struct(head), struct.Struct(">iiq8xi"), _since_9)
    return _Layout(
        struct.Struct(head), struct.Struct(">iq8xi" if version >= 5 else ">iqi"), FetchPartition
    )


def _since_9(partition: int, leader_epoch: int, offset: int, bytes_max: int) -> FetchPartition:
    return FetchPartition(partition, offset, bytes_max, leader_epoch)


def _since_12(
    partition: int, leader_epoch: int, offset: int, last_fetched_epoch: int, bytes_max: int
) -> FetchPartition:
    return FetchPartition(partition, offset, bytes_max, leader_epoch, last_fetched_epoch)


_LAYOUTS: Final = {version: _layout(version) for version in range(4, 18)}


def decode_fetch_request(version: int, frame: Frame, position: int) -> FetchRequest:
    """The request whose body starts at `position`. Raises `DecodeError`."""
    try:
        return _decode(version, frame, position)
    except (struct.error, IndexError) as error:
        raise DecodeError(
            f"the fetch request ends after {len(frame)} bytes, in mid field"
        ) from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"a name in the fetch request is not UTF-8: {error}") from error


def _decode(version: int, frame: Frame, position: int) -> FetchRequest:
    head, partition, make = _LAYOUTS[version]
    is_flexible = version >= _FLEXIBLE_FROM
    head_fields = head.unpack_from(frame, position)
    topic_count, position = _size(frame, position + head.size, is_flexible)
    elements = add_elements(frame, position, topic_count, 0, ELEMENTS_MAX)
    topics = []
    for _ in range(topic_count):
        topic, position = _topic(version, frame, position)
        partition_count, position = _size(frame, position, is_flexible)
        elements = add_elements(frame, position, partition_count, elements, ELEMENTS_MAX)
        partitions = []
        for _ in range(partition_count):
            partitions.append(make(*partition.unpack_from(frame, position)))
            position += partition.size
            if is_flexible:
                position = skip_tagged_fields(frame, position)
        if is_flexible:
            position = skip_tagged_fields(frame, position)
        topics.append(FetchTopic(topic, partitions))
    max_wait_ms, min_bytes, bytes_max, isolation_level, *session = head_fields
    if session:
        _skip_end(version, frame, position, elements)
    (session_epoch,) = session or (NO_SESSION_EPOCH,)
    return FetchRequest(max_wait_ms, min_bytes, bytes_max, isolation_level, session_epoch, topics)


def _skip_end(version: int, frame: Frame, position: int, elements: int) -> None:
    """Skips what follows the topics: those that a session forgets, and the rack."""
    is_flexible = version >= _FLEXIBLE_FROM
    topic_count, position = _size(frame, position, is_flexible)
    elements = add_elements(frame, position, topic_count, elements, ELEMENTS_MAX)
    for _ in range(topic_count):
        _, position = _topic(version, frame, position)
        count, position = _size(frame, position, is_flexible)
        elements = add_elements(frame, position, count, elements, ELEMENTS_MAX)
        field_bytes(frame, position, count * _INT32.size)
        position += count * _INT32.size
        if is_flexible:
            position = skip_tagged_fields(frame, position)
    if version >= _RACK_FROM:
        _, position = _string(frame, position, is_flexible)
    if is_flexible:
        skip_tagged_fields(frame, position)


def _topic(version: int, frame: Frame, position: int) -> tuple[str | uuid.UUID, int]:
    if version < _TOPIC_IDS_FROM:
        return _string(frame, position, version >= _FLEXIBLE_FROM)
    topic_id = uuid.UUID(bytes=bytes(field_bytes(frame, position, _UUID_SIZE)))
    return topic_id, position + _UUID_SIZE


def _string(frame: Frame, position: int, is_flexible: bool) -> tuple[str, int]:
    if is_flexible:
        size, position = compact_size(frame, position)
    else:
        (size,) = _INT16.unpack_from(frame, position)
        position += _INT16.size
    return str(field_bytes(frame, position, size), "utf-8"), position + size


def _size(frame: Frame, position: int, is_flexible: bool) -> tuple[int, int]:
    """`(number of elements, position after it)` of an array."""
    if is_flexible:
        return compact_size(frame, position)
    (size,) = _INT32.unpack_from(frame, position)
    return size, position + _INT32.size
