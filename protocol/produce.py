"""The Produce response, packed by hand: with kio it would cost ten times the rest of the request.

Layout by version (`docs/protocol/produce.md`): v3-4 end with log_append_time, v5 adds
log_start_offset, v8 record_errors and error_message, v9 is flexible, v10 adds the tagged
current_leader (sent only with NOT_LEADER_OR_FOLLOWER) and node_endpoints, v13 names topics by id.
`tests/protocol/test_produce.py` decodes every version with kio.
"""

from __future__ import annotations

import functools
import struct
import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

from echoless.protocol.errors import ErrorCode
from echoless.protocol.headers import NO_TAGS, write_unsigned_varint
from echoless.protocol.node_endpoints import LeaderHint, encode_endpoints, encode_leader

_PARTITION_V3: Final = struct.Struct(">ihqq")
_PARTITION_V5: Final = struct.Struct(">ihqqq")
_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")
_NO_THROTTLE: Final = _INT32.pack(0)
_NO_THROTTLE_NO_TAGS: Final = _NO_THROTTLE + NO_TAGS
_END_OF_ONE: Final = NO_TAGS + _NO_THROTTLE_NO_TAGS
"""The bytes after the rows of the only topic."""
_pack_row: Final = struct.Struct(">ihqqq3s").pack
_PLAIN: Final = b"\x01\x00\x00"
"""No record errors, no message and no tagged fields."""
_ONE_TOPIC: Final = b"\x02"
"""The size of a compact array of one."""
_NULL_STRING: Final = _INT16.pack(-1)
_FLEXIBLE_FROM: Final = 9
_LEADERS_FROM: Final = 10
_LEADER_TAG: Final = 0
_TOPIC_IDS_FROM: Final = 13
_NAME_MAX: Final = 249
"""Limit on the length of a topic's name."""


class RecordError(NamedTuple):
    """One record that made its batch fail: its index in the batch, and why."""

    batch_index: int
    message: str


class PartitionProduced(NamedTuple):
    """The outcome for one partition of a produce request."""

    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: tuple[RecordError, ...] = ()
    current_leader: LeaderHint | None = None
    """The leader to ask instead, sent from v10 on with NOT_LEADER_OR_FOLLOWER."""
    reason: str = ""
    """Why a batch was refused, if Kafka's answer leaves the message empty: for the native port."""


TopicProduced = tuple[str | uuid.UUID, Sequence[PartitionProduced]]
"""A topic's id (from v13 on) or name, with the outcomes for its partitions."""


def encode_produce_response(version: int, topics: Sequence[TopicProduced]) -> bytes:
    """The body (without the response header) for versions 3 to 13."""
    if version < _FLEXIBLE_FROM:
        return _encode_fixed(version, topics)
    has_ids = version >= _TOPIC_IDS_FROM
    hints: list[LeaderHint] = []
    parts = [_ONE_TOPIC if len(topics) == 1 else write_unsigned_varint(len(topics) + 1)]
    for key, partitions in topics:
        # A name that no topic can have is not kept: it may be long.
        head = _known_topic_head if has_ids or len(key) <= _NAME_MAX else _topic_head  # type: ignore[arg-type]
        parts.append(head(key, len(partitions), has_ids))
        for partition in partitions:
            index, error_code, base_offset, append_time, start = partition[:5]
            if error_code:
                parts.append(_flexible_failure(version, partition, hints))
            else:
                parts.append(_pack_row(index, 0, base_offset, append_time, start, _PLAIN))
        parts.append(NO_TAGS)
    parts.append(_NO_THROTTLE + encode_endpoints(hints) if hints else _NO_THROTTLE_NO_TAGS)
    return b"".join(parts)


def encode_produced(version: int, topic: str | uuid.UUID, produced: PartitionProduced) -> bytes:
    """The same for a request of one partition."""
    if version < _FLEXIBLE_FROM or produced.error_code:
        return encode_produce_response(version, [(topic, [produced])])
    index, _, base_offset, append_time, start = produced[:5]
    head = _known_topic_head(topic, 1, version >= _TOPIC_IDS_FROM)
    row = _pack_row(index, 0, base_offset, append_time, start, _PLAIN)
    return b"".join((_ONE_TOPIC, head, row, _END_OF_ONE))


def _topic_head(key: str | uuid.UUID, partition_count: int, has_ids: bool) -> bytes:
    """Encodes what precedes the rows of a topic; most answers repeat it."""
    name = key.bytes if isinstance(key, uuid.UUID) else key.encode()
    size = b"" if has_ids else write_unsigned_varint(len(name) + 1)
    return size + name + write_unsigned_varint(partition_count + 1)


_known_topic_head: Final = functools.lru_cache(1000)(_topic_head)


def _encode_fixed(version: int, topics: Sequence[TopicProduced]) -> bytes:
    parts = [_INT32.pack(len(topics))]
    for topic, partitions in topics:
        parts.append(_string(str(topic)))
        parts.append(_INT32.pack(len(partitions)))
        parts.extend(_fixed_partition(version, partition) for partition in partitions)
    parts.append(_NO_THROTTLE)
    return b"".join(parts)


def _fixed_partition(version: int, partition: PartitionProduced) -> bytes:
    number, error_code, base_offset, append_time, start = partition[:5]
    if version < 5:
        return _PARTITION_V3.pack(number, error_code, base_offset, append_time)
    packed = _PARTITION_V5.pack(number, error_code, base_offset, append_time, start)
    if version < 8:
        return packed
    errors = b"".join(
        _INT32.pack(error.batch_index) + _string(error.message) for error in partition.record_errors
    )
    message = partition.error_message
    return b"".join(
        (
            packed,
            _INT32.pack(len(partition.record_errors)),
            errors,
            _NULL_STRING if message is None else _string(message),
        )
    )


def _flexible_failure(version: int, partition: PartitionProduced, hints: list[LeaderHint]) -> bytes:
    """The row of a batch that failed; adds its leader to `hints` if the version has that."""
    packed = _PARTITION_V5.pack(*partition[:5])
    parts = [packed, write_unsigned_varint(len(partition.record_errors) + 1)]
    for error in partition.record_errors:
        parts += (_INT32.pack(error.batch_index), _compact_string(error.message), NO_TAGS)
    parts.append(_compact_string(partition.error_message))
    if version >= _LEADERS_FROM and partition.current_leader is not None:
        hints.append(partition.current_leader)
        parts.append(encode_leader(_LEADER_TAG, partition.current_leader))
    else:
        parts.append(NO_TAGS)
    return b"".join(parts)


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\x00"
    data = text.encode()
    return write_unsigned_varint(len(data) + 1) + data
