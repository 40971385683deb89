"""The value of a committed offset: versions 0 to 4 are read, 1 and 3 written.

After the version: v0 offset i64, metadata, commit timestamp i64; v1 adds the expire timestamp i64, which v2 drops;
v3 has the leader epoch i32 after the offset; v4 is flexible.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from echoless.protocol.state_records.fields import (
    INT16,
    INT64,
    open_value,
)

NO_LEADER_EPOCH: Final = -1
NO_EXPIRY: Final = -1
_VERSION_MAX: Final = 4
_FLEXIBLE_FROM: Final = 4
_PLAIN_PREFIX: Final = struct.Struct(">hqih")
_PREFIX_V1: Final = struct.Struct(">hq")


class OffsetValue(NamedTuple):
    """A committed offset."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = NO_EXPIRY
    """Set by clients of OffsetCommit v2 to v4 only."""


def read_offset_value(data: bytes) -> OffsetValue:
    """Reads a value. Raises `DecodeError`."""
    return _plain_offset_value(data) or _any_offset_value(data)


def _plain_offset_value(data: bytes) -> OffsetValue | None:
    """A value of version 3, in a third of the time; None for other bytes. A load reads millions."""
    try:
        version, offset, leader_epoch, size = _PLAIN_PREFIX.unpack_from(data)
        if version != 3 or size < 0:
            return None
        end = _PLAIN_PREFIX.size + size
        (timestamp,) = INT64.unpack_from(data, end)
        metadata = str(data[_PLAIN_PREFIX.size : end], "utf-8") if size else ""
    except (struct.error, UnicodeDecodeError):
        return None
    return OffsetValue(offset, leader_epoch, metadata, timestamp, NO_EXPIRY)


def _any_offset_value(data: bytes) -> OffsetValue:
    version, reader = open_value(
        data, "a committed offset", version_max=_VERSION_MAX, flexible_from=_FLEXIBLE_FROM
    )
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else NO_LEADER_EPOCH
    metadata, committed = reader.string(), reader.int64()
    expires = reader.int64() if version == 1 else NO_EXPIRY
    return OffsetValue(offset, leader_epoch, metadata, committed, expires)


def write_offset_value(value: OffsetValue) -> bytes:
    """Packs version 1 if the offset has a time to expire at, else 3. The metadata fits `STRING_BYTES_MAX`."""
    metadata = value.metadata.encode()
    committed = INT64.pack(value.commit_timestamp)
    if value.expire_timestamp != NO_EXPIRY:
        begin = _PREFIX_V1.pack(1, value.offset) + INT16.pack(len(metadata))
        return begin + metadata + committed + INT64.pack(value.expire_timestamp)
    begin = _PLAIN_PREFIX.pack(3, value.offset, value.leader_epoch, len(metadata))
    return begin + metadata + committed
