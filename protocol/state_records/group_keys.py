"""Keys of the records of `__consumer_offsets`. The version of a key is the type of its record."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from echoless.protocol.state_records.fields import (
    INT16,
    INT32,
    STRING_BYTES_MAX,
    FieldReader,
    pack_string,
)

_OFFSET_VERSIONS: Final = (0, 1)
_OFFSET_PREFIXES: Final = tuple(map(INT16.pack, _OFFSET_VERSIONS))
_OFFSET: Final = INT16.pack(1)
_GROUP_VERSION: Final = 2
_GROUP: Final = INT16.pack(_GROUP_VERSION)
_REGEX_VERSION: Final = 16


class OffsetKey(NamedTuple):
    """A committed offset."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """A group of the classic protocol: its generation, members and assignments."""

    group_id: str


class EpochKey(NamedTuple):
    """The epoch of a group of the consumer protocol (KIP-848)."""

    group_id: str


class MemberKey(NamedTuple):
    """A member of such a group: what it subscribes to."""

    group_id: str
    member_id: str


class TargetEpochKey(NamedTuple):
    """The epoch for which the target assignment of such a group was made."""

    group_id: str


class TargetKey(NamedTuple):
    """The partitions that a member is to have."""

    group_id: str
    member_id: str


class CurrentKey(NamedTuple):
    """The partitions that a member has, and its epoch."""

    group_id: str
    member_id: str


class RegexKey(NamedTuple):
    """A regular expression that members subscribe to."""

    group_id: str
    pattern: str


class OtherKey(NamedTuple):
    """A record of a type that is not read here, of share groups for instance."""

    version: int


ConsumerKey = EpochKey | MemberKey | TargetEpochKey | TargetKey | CurrentKey | RegexKey
_CONSUMER_VERSIONS: Final[dict[type[ConsumerKey], int]] = {
    EpochKey: 3,
    MemberKey: 5,
    TargetEpochKey: 6,
    TargetKey: 7,
    CurrentKey: 8,
    RegexKey: _REGEX_VERSION,
}
_CONSUMER_KEYS: Final = {version: kind for kind, version in _CONSUMER_VERSIONS.items()}


def read_key(data: bytes) -> OffsetKey | GroupKey | ConsumerKey | OtherKey:
    """Reads a key. Raises `DecodeError`."""
    return _plain_offset_key(data) or _any_key(data)


def _plain_offset_key(data: bytes) -> OffsetKey | None:
    """The key of a committed offset, in a third of the time; None for other bytes. A load reads millions."""
    if data[:2] not in _OFFSET_PREFIXES or len(data) > STRING_BYTES_MAX:
        return None
    try:
        group_end = 4 + (data[2] << 8 | data[3])
        topic_begin = group_end + 2
        topic_end = topic_begin + (data[group_end] << 8 | data[group_end + 1])
        (partition,) = INT32.unpack_from(data, topic_end)
        group_id, topic = str(data[4:group_end], "utf-8"), str(data[topic_begin:topic_end], "utf-8")
    except (IndexError, struct.error, UnicodeDecodeError):
        return None
    return OffsetKey(group_id, topic, partition)


def _any_key(data: bytes) -> OffsetKey | GroupKey | ConsumerKey | OtherKey:
    reader = FieldReader(data)
    version = reader.int16()
    if version in _OFFSET_VERSIONS:
        return OffsetKey(reader.string(), reader.string(), reader.int32())
    if version == _GROUP_VERSION:
        return GroupKey(reader.string())
    kind = _CONSUMER_KEYS.get(version)
    if kind is None:
        return OtherKey(version)
    return kind(*[reader.string() for _ in kind._fields])


def write_offset_key(key: OffsetKey) -> bytes:
    """Packs version 1, the newest."""
    group_id, topic = key.group_id.encode(), key.topic.encode()
    prefix = _OFFSET + INT16.pack(len(group_id)) + group_id
    return prefix + INT16.pack(len(topic)) + topic + INT32.pack(key.partition)


def write_group_key(group_id: str) -> bytes:
    """Packs version 2, the only one."""
    return _GROUP + pack_string(group_id)


def write_consumer_key(key: ConsumerKey) -> bytes:
    """Packs a key of the consumer protocol: its version, and its names."""
    return INT16.pack(_CONSUMER_VERSIONS[type(key)]) + b"".join(map(pack_string, key))
