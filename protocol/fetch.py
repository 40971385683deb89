"""The Fetch response, packed by hand, so that record bytes go out as they came from the log.

The encoder returns a list of buffers: small packed pieces with the records between them, for one
gathering write. Versions 4 to 17: v5 adds log_start_offset, v7 the error code and session id, v11
preferred_read_replica, v12 is flexible (with the tagged diverging_epoch), v13 names topics by id.
`tests/protocol/test_fetch.py` decodes every version with kio.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

from protocol.errors import ErrorCode
from protocol.headers import NO_TAGS, write_unsigned_varint

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_PARTITION_V4: Final = struct.Struct(">ihqq")
_PARTITION_V5: Final = struct.Struct(">ihqqq")
_SESSION: Final = struct.Struct(">hi")
_EPOCH_END: Final = struct.Struct(">iq")
_NO_THROTTLE: Final = _INT32.pack(0)
_NO_PREFERRED_REPLICA: Final = _INT32.pack(-1)
_FLEXIBLE_FROM: Final = 12
_TOPIC_IDS_FROM: Final = 13

READ_COMMITTED: Final = 1
"""The isolation level that reads up to the last stable offset; any other reads up to the high watermark."""
NO_SESSION: Final = 0


class PartitionFetched(NamedTuple):
    """The outcome for one partition of a fetch request. `records` are whole batches."""

    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: bytes = b""
    diverging_epoch: tuple[int, int] | None = None
    """`(epoch, its end offset)` where the fetcher's log diverged from ours (v12 on)."""


class TopicFetched(NamedTuple):
    topic: str | uuid.UUID
    partitions: Sequence[PartitionFetched]


def encode_fetch_response(
    version: int, error_code: ErrorCode, topics: Sequence[TopicFetched]
) -> list[bytes]:
    """Buffers of the body (without the response header) for versions 4 to 17."""
    flexible = version >= _FLEXIBLE_FROM
    out = [_NO_THROTTLE]
    if version >= 7:
        out.append(_SESSION.pack(error_code, NO_SESSION))
    out.append(_array_length(len(topics), flexible=flexible))
    for topic in topics:
        out.append(_topic(version, topic.topic))
        out.append(_array_length(len(topic.partitions), flexible=flexible))
        for partition in topic.partitions:
            _add_partition(out, version, partition)
        if flexible:
            out.append(NO_TAGS)
    if flexible:
        out.append(NO_TAGS)
    return out


def _add_partition(out: list[bytes], version: int, partition: PartitionFetched) -> None:
    flexible = version >= _FLEXIBLE_FROM
    if version < 5:
        out.append(_PARTITION_V4.pack(*partition[:4]))
    else:
        out.append(_PARTITION_V5.pack(*partition[:5]))
    out.append(_array_length(0, flexible=flexible))  # aborted transactions: there are none
    if version >= 11:
        out.append(_NO_PREFERRED_REPLICA)
    size = len(partition.records)
    out.append(write_unsigned_varint(size + 1) if flexible else _INT32.pack(size))
    out.append(partition.records)
    if flexible:
        out.append(_partition_tags(partition))


def _partition_tags(partition: PartitionFetched) -> bytes:
    if partition.diverging_epoch is None:
        return NO_TAGS
    # one tagged field: tag 0, 13 bytes: epoch, end offset, no tags of its own
    return b"\x01\x00\x0d" + _EPOCH_END.pack(*partition.diverging_epoch) + NO_TAGS


def _array_length(count: int, *, flexible: bool) -> bytes:
    return write_unsigned_varint(count + 1) if flexible else _INT32.pack(count)


def _topic(version: int, topic: str | uuid.UUID) -> bytes:
    if version >= _TOPIC_IDS_FROM:
        assert isinstance(topic, uuid.UUID)
        return topic.bytes
    name = str(topic).encode()
    if version >= _FLEXIBLE_FROM:
        return write_unsigned_varint(len(name) + 1) + name
    return _INT16.pack(len(name)) + name
