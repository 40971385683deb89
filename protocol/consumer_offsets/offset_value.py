"""The value of a committed offset: versions 0 to 4 are read, 1, 3 and 4 written.

After the version: v0 offset i64, metadata, commit timestamp i64; v1 adds the expire timestamp i64, which v2 drops;
v3 has the leader epoch i32 after the offset; v4 is flexible.
"""

from __future__ import annotations

import struct
from typing import Final

from protocol.consumer_offsets.fields import (
    INT64,
    STRING_BYTES_MAX,
    FieldReader,
    pack_string,
)
from protocol.errors import DecodeError
from protocol.headers import NO_TAGS
from protocol.lean_named_tuple import NamedTuple

NO_LEADER_EPOCH: Final = -1
NO_EXPIRY: Final = -1
_VERSION_MAX: Final = 4
_PREFIX_V1: Final = struct.Struct(">hq")
_PREFIX_V3: Final = struct.Struct(">hqi")


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
    reader = FieldReader(data)
    version = reader.int16()
    if not 0 <= version <= _VERSION_MAX:
        raise DecodeError(
            f"a committed offset of version {version}; at most {_VERSION_MAX} is known"
        )
    reader.flexible = version >= 4
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else NO_LEADER_EPOCH
    metadata, committed = reader.string(), reader.int64()
    expires = reader.int64() if version == 1 else NO_EXPIRY
    return OffsetValue(offset, leader_epoch, metadata, committed, expires)


def write_offset_value(value: OffsetValue) -> bytes:
    """Packs version 1 if the offset has a time to expire at, 4 if its metadata is too long for 3, else 3."""
    metadata = pack_string_if_it_fits(value.metadata)
    if metadata is None:
        return b"".join(
            (
                _PREFIX_V3.pack(4, value.offset, value.leader_epoch),
                pack_string(value.metadata, flexible=True),
                INT64.pack(value.commit_timestamp),
                NO_TAGS,
            )
        )
    times = INT64.pack(value.commit_timestamp)
    if value.expire_timestamp != NO_EXPIRY:
        return (
            _PREFIX_V1.pack(1, value.offset) + metadata + times + INT64.pack(value.expire_timestamp)
        )
    return _PREFIX_V3.pack(3, value.offset, value.leader_epoch) + metadata + times


def pack_string_if_it_fits(text: str) -> bytes | None:
    """`text` with a length of 16 bits; None if it is too long for that."""
    return None if len(text.encode()) > STRING_BYTES_MAX else pack_string(text)
