"""The Fetch request, read by hand: with kio it cost more than reading the records.

Layout by version: v4-14 begin with the replica id; v5 adds the follower's log start offset; v7 the session
and the topics that it forgets; v9 the leader epoch that the client knows; v11 the rack; v12 is flexible and
adds the epoch of the last batch; v13 names topics by id. v15 moves the replica id into the
tagged fields at the end. The follower's log start offset, the rack and all other tagged fields are skipped:
followers of ours replicate over the native port.
`tests/protocol/test_fetch_request.py` compares every version with kio.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from echoless.protocol.errors import DecodeError
from echoless.protocol.framing import Frame
from echoless.protocol.headers import (
    read_unsigned_varint,
    skip_tagged_fields,
    write_unsigned_varint,
)
from echoless.protocol.request_fields import ELEMENTS_MAX, add_elements, compact_size, field_bytes

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_UUID: Final = struct.Struct("16s")
_SESSIONS_FROM, _LEADER_EPOCHS_FROM, _RACK_FROM, _FLEXIBLE_FROM, _TOPIC_IDS_FROM = 7, 9, 11, 12, 13
_REPLICA_STATE_FROM: Final = 15
NO_EPOCH: Final = -1
"""The leader epoch of a client that does not give one: any is accepted."""
NO_SESSION: Final = 0
"""The id of no session."""
NO_SESSION_EPOCH: Final = -1
"""The session epoch of a request outside any session."""

NO_REPLICA: Final = -1
"""The replica id of a consumer."""
_REPLICA_STATE: Final = 1
"""The tag of the replica id and its broker epoch."""


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


class ForgottenTopic(NamedTuple):
    """Partitions that a session is to forget."""

    topic: str | uuid.UUID
    partitions: Sequence[int]


class FetchRequest(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    bytes_max: int
    isolation_level: int
    session_epoch: int
    topics: list[FetchTopic]
    replica_id: int = NO_REPLICA
    """The broker that fetches as a follower; Kafka's do, ours replicate over the native port."""
    session_id: int = NO_SESSION
    forgotten: Sequence[ForgottenTopic] = ()


class _Layout(NamedTuple):
    """The fields of fixed size in one version before 12."""

    head: struct.Struct
    """From the replica id to the session epoch, if there is one, and the count of topics."""
    partition: struct.Struct
    has_leader_epoch: bool
    usual_end: bytes
    """The end of a request in which a session forgets no topic and no rack is named."""


def _layout(version: int) -> _Layout:
    head = struct.Struct(">iiiibiii" if version >= _SESSIONS_FROM else ">iiiibi")
    end = bytes(6 if version >= _RACK_FROM else 4)
    if version >= _LEADER_EPOCHS_FROM:
        return _Layout(head, struct.Struct(">iiq8xi"), has_leader_epoch=True, usual_end=end)
    partition = struct.Struct(">iq8xi" if version >= 5 else ">iqi")
    return _Layout(head, partition, has_leader_epoch=False, usual_end=end)


_LAYOUTS: Final = {version: _layout(version) for version in range(4, _FLEXIBLE_FROM)}
_FLEXIBLE_HEADS: Final = {
    version: struct.Struct((">" if version >= _REPLICA_STATE_FROM else ">i") + "iiibii")
    for version in range(_FLEXIBLE_FROM, 18)
}
"""Up to the count of topics."""
_FLEXIBLE_PARTITION: Final = struct.Struct(">iiqi8xi")
_FLEXIBLE_END: Final = b"\1\1\0"
_NAME_AND_COUNT_SIZE: Final = _INT16.size + _INT32.size


def usual_size(version: int, topic: str | uuid.UUID) -> int:
    """The bytes of a body with one partition of `topic` and nothing unusual; with anything more it has more bytes."""
    if version < _FLEXIBLE_FROM:
        head, partition, _, usual_end = _LAYOUTS[version]
        end_size = len(usual_end) if version >= _SESSIONS_FROM else 0
        return (
            head.size + _NAME_AND_COUNT_SIZE + len(str(topic).encode()) + partition.size + end_size
        )
    size = _FLEXIBLE_HEADS[version].size + 2 + _FLEXIBLE_PARTITION.size + 2 + len(_FLEXIBLE_END)
    if version >= _TOPIC_IDS_FROM:
        return size + _UUID.size
    name_size = len(str(topic).encode())
    return size + len(write_unsigned_varint(name_size + 1)) + name_size


@lru_cache(maxsize=1024)
def _topic_id(data: bytes) -> uuid.UUID:
    """The id of a topic: consumers repeat theirs in every request, and a `UUID` is slow to make."""
    return uuid.UUID(bytes=data)


def decode_fetch_request(
    version: int, frame: Frame, position: int, topics_max: int = ELEMENTS_MAX
) -> FetchRequest:
    """The request whose body starts at `position`.

    Raises `DecodeError`: a `ManyElementsError` if it has more than `topics_max` topics.
    """
    try:
        if version >= _FLEXIBLE_FROM:
            return _flexible(version, frame, position, topics_max)
        return _fixed(version, frame, position, topics_max)
    except (struct.error, IndexError) as error:
        raise DecodeError(
            f"the fetch request ends after {len(frame)} bytes, in mid field"
        ) from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"a name in the fetch request is not UTF-8: {error}") from error


def _fixed(version: int, frame: Frame, position: int, topics_max: int) -> FetchRequest:
    """A request of versions 4 to 11."""
    head, partition, has_leader_epoch, usual_end = _LAYOUTS[version]
    fields = head.unpack_from(frame, position)
    if version >= _SESSIONS_FROM:
        replica_id, wait_ms, min_bytes, bytes_max, isolation, session_id, epoch, topic_count = (
            fields
        )
    else:
        replica_id, wait_ms, min_bytes, bytes_max, isolation, topic_count = fields
        session_id, epoch = NO_SESSION, NO_SESSION_EPOCH
    position += head.size
    elements = add_elements(frame, position, topic_count, 0, topics_max)
    topics = []
    unpack, size = partition.unpack_from, partition.size
    leader_epoch = NO_EPOCH
    for _ in range(topic_count):
        (name_size,) = _INT16.unpack_from(frame, position)
        position += 2
        end = position + name_size
        # A name that the frame cuts short is noticed at the count that follows it.
        name = frame[position:end] if name_size >= 0 else field_bytes(frame, position, name_size)
        (count,) = _INT32.unpack_from(frame, end)
        position = end + 4
        elements = add_elements(frame, position, count, elements, ELEMENTS_MAX)
        rows = []
        for _ in range(count):
            if has_leader_epoch:
                index, leader_epoch, offset, row_bytes_max = unpack(frame, position)
            else:
                index, offset, row_bytes_max = unpack(frame, position)
            rows.append(FetchPartition(index, offset, row_bytes_max, leader_epoch, NO_EPOCH))
            position += size
        topics.append(FetchTopic(str(name, "utf-8"), rows))
    forgotten: Sequence[ForgottenTopic] = ()
    if version >= _SESSIONS_FROM and frame[position:] != usual_end:
        forgotten, _ = _end(version, frame, position, elements, topics_max)
    first = wait_ms, min_bytes, bytes_max, isolation
    return FetchRequest(*first, epoch, topics, replica_id, session_id, forgotten)


def _flexible(version: int, frame: Frame, position: int, topics_max: int) -> FetchRequest:
    """A request of versions 12 to 17."""
    head = _FLEXIBLE_HEADS[version]
    fields = head.unpack_from(frame, position)
    if version >= _REPLICA_STATE_FROM:
        wait_ms, min_bytes, bytes_max, isolation, session_id, epoch = fields
        replica_id = NO_REPLICA
    else:
        replica_id, wait_ms, min_bytes, bytes_max, isolation, session_id, epoch = fields
    position += head.size
    topic_count, position = compact_size(frame, position)
    elements = add_elements(frame, position, topic_count, 0, topics_max)
    topics = []
    unpack, size = _FLEXIBLE_PARTITION.unpack_from, _FLEXIBLE_PARTITION.size
    for _ in range(topic_count):
        topic: str | uuid.UUID
        if version >= _TOPIC_IDS_FROM:
            topic = _topic_id(*_UUID.unpack_from(frame, position))
            position += _UUID.size
        else:
            name_size, position = compact_size(frame, position)
            topic = str(field_bytes(frame, position, name_size), "utf-8")
            position += name_size
        count, position = compact_size(frame, position)
        elements = add_elements(frame, position, count, elements, ELEMENTS_MAX)
        rows = []
        for _ in range(count):
            index, leader_epoch, offset, last_epoch, row_bytes_max = unpack(frame, position)
            rows.append(FetchPartition(index, offset, row_bytes_max, leader_epoch, last_epoch))
            position += size
            position = skip_tagged_fields(frame, position) if frame[position] else position + 1
        position = skip_tagged_fields(frame, position) if frame[position] else position + 1
        topics.append(FetchTopic(topic, rows))
    forgotten: Sequence[ForgottenTopic] = ()
    if frame[position:] != _FLEXIBLE_END:
        forgotten, position = _end(version, frame, position, elements, topics_max)
        if version >= _REPLICA_STATE_FROM:
            replica_id = _replica_id(frame, position)
        else:
            skip_tagged_fields(frame, position)
    first = wait_ms, min_bytes, bytes_max, isolation
    return FetchRequest(*first, epoch, topics, replica_id, session_id, forgotten)


def _replica_id(frame: Frame, position: int) -> int:
    """The replica id among the tagged fields at the end."""
    skip_tagged_fields(frame, position)  # raises if they are too many, or longer than the frame
    count, position = read_unsigned_varint(frame, position)
    for _ in range(count):
        tag, position = read_unsigned_varint(frame, position)
        size, position = read_unsigned_varint(frame, position)
        if tag == _REPLICA_STATE:
            (replica_id,) = _INT32.unpack(field_bytes(frame, position, _INT32.size))
            return int(replica_id)
        position += size
    return NO_REPLICA


def _end(
    version: int, frame: Frame, position: int, elements: int, topics_max: int
) -> tuple[list[ForgottenTopic], int]:
    """The topics that a session forgets, and the position of the last tagged fields; the rack is skipped."""
    is_flexible = version >= _FLEXIBLE_FROM
    topic_count, position = _size(frame, position, is_flexible)
    add_elements(frame, position, topic_count, 0, topics_max)
    elements = add_elements(frame, position, topic_count, elements, ELEMENTS_MAX)
    forgotten = []
    for _ in range(topic_count):
        topic: str | uuid.UUID
        if version >= _TOPIC_IDS_FROM:
            topic = _topic_id(bytes(field_bytes(frame, position, _UUID.size)))
            position += _UUID.size
        else:
            topic, position = _string(frame, position, is_flexible)
        count, position = _size(frame, position, is_flexible)
        elements = add_elements(frame, position, count, elements, ELEMENTS_MAX)
        indexes = field_bytes(frame, position, count * _INT32.size)
        forgotten.append(ForgottenTopic(topic, struct.unpack(f">{count}i", indexes)))
        position += count * _INT32.size
        if is_flexible:
            position = skip_tagged_fields(frame, position)
    if version >= _RACK_FROM:
        _, position = _string(frame, position, is_flexible)
    return forgotten, position


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
