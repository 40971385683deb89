"""Keys of the records of `__consumer_offsets`. The version of a key is the type of its record."""

from __future__ import annotations

from typing import Final

from protocol.consumer_offsets.fields import INT16, INT32, FieldReader, pack_string
from protocol.lean_named_tuple import NamedTuple

_OFFSET_VERSIONS: Final = (0, 1)
_OFFSET: Final = INT16.pack(1)
_GROUP_VERSION: Final = 2
_GROUP: Final = INT16.pack(_GROUP_VERSION)


class OffsetKey(NamedTuple):
    """A committed offset."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """A group of the classic protocol: its generation, members and assignments."""

    group_id: str


class OtherKey(NamedTuple):
    """A record of a type that is not read here, of KIP-848 for instance."""

    version: int


def read_key(data: bytes) -> OffsetKey | GroupKey | OtherKey:
    """Reads a key. Raises `DecodeError`."""
    reader = FieldReader(data)
    version = reader.int16()
    if version in _OFFSET_VERSIONS:
        return OffsetKey(reader.string(), reader.string(), reader.int32())
    if version == _GROUP_VERSION:
        return GroupKey(reader.string())
    return OtherKey(version)


def write_offset_key(key: OffsetKey) -> bytes:
    """Packs version 1, the newest."""
    return _OFFSET + pack_string(key.group_id) + pack_string(key.topic) + INT32.pack(key.partition)


def write_group_key(group_id: str) -> bytes:
    """Packs version 2, the only one."""
    return _GROUP + pack_string(group_id)
