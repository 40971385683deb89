"""The value of a group of the classic protocol: versions 0 to 4 are read, 3 and 4 written.

After the version: protocol type, generation i32, protocol?, leader?, time since when i64 (v2), members. A member:
member id, instance id? (v3), client id, client host, rebalance timeout i32 (v1), session timeout i32, subscription,
assignment. v4 is flexible. Echoless writes it for a group that has begun a generation and has no assignment yet, with
tag 10000, which Kafka skips: were the number not stored, the next coordinator would issue it again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from echoless.protocol.headers import NO_TAGS, write_unsigned_varint
from echoless.protocol.state_records.fields import (
    INT16,
    INT32,
    INT64,
    FieldReader,
    open_value,
    pack_bytes,
    pack_size,
    pack_string,
)

NO_TIMESTAMP: Final = -1
_VERSION_MAX: Final = 4
_FLEXIBLE_FROM: Final = 4
_REBALANCING_TAG: Final = 10_000
_REBALANCING: Final = b"".join(
    (write_unsigned_varint(1), write_unsigned_varint(_REBALANCING_TAG), write_unsigned_varint(0))
)


class ClassicMemberValue(NamedTuple):
    """A member and its assignment."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A generation of a group."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_timestamp: int
    """Wall clock when the group came into its state, or `NO_TIMESTAMP`."""
    members: tuple[ClassicMemberValue, ...]
    is_rebalancing: bool = False
    """The generation has begun, and its leader has not assigned anything yet."""


def read_group_value(data: bytes) -> GroupValue:
    """Reads a value. Raises `DecodeError`."""
    version, reader = open_value(
        data, "a group", version_max=_VERSION_MAX, flexible_from=_FLEXIBLE_FROM
    )
    protocol_type, generation_id = reader.string(), reader.int32()
    protocol_name, leader = reader.nullable_string(), reader.nullable_string()
    timestamp = reader.int64() if version >= 2 else NO_TIMESTAMP
    members = reader.array(lambda fields: _read_member(fields, version))
    is_rebalancing = _REBALANCING_TAG in reader.tag_buffer()
    return GroupValue(
        protocol_type, generation_id, protocol_name, leader, timestamp, members, is_rebalancing
    )


def _read_member(reader: FieldReader, version: int) -> ClassicMemberValue:
    member_id = reader.string()
    instance = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else None
    session_timeout_ms = reader.int32()
    subscription, assignment = reader.bytes_(), reader.bytes_()
    reader.tag_buffer()
    if rebalance_timeout_ms is None:
        rebalance_timeout_ms = session_timeout_ms
    return ClassicMemberValue(
        member_id,
        instance,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


def write_group_value(value: GroupValue) -> bytes:
    """Packs version 3, or 4 while the group is rebalancing."""
    flexible = value.is_rebalancing
    parts = [
        INT16.pack(4 if flexible else 3),
        pack_string(value.protocol_type, flexible=flexible),
        INT32.pack(value.generation_id),
        pack_string(value.protocol_name, flexible=flexible),
        pack_string(value.leader, flexible=flexible),
        INT64.pack(value.state_timestamp),
        pack_size(len(value.members), flexible=flexible),
    ]
    for member in value.members:
        parts += _member_parts(member, flexible=flexible)
    if flexible:
        parts.append(_REBALANCING)
    return b"".join(parts)


def _member_parts(member: ClassicMemberValue, *, flexible: bool) -> tuple[bytes, ...]:
    return (
        pack_string(member.member_id, flexible=flexible),
        pack_string(member.group_instance_id, flexible=flexible),
        pack_string(member.client_id, flexible=flexible),
        pack_string(member.client_host, flexible=flexible),
        INT32.pack(member.rebalance_timeout_ms),
        INT32.pack(member.session_timeout_ms),
        pack_bytes(member.subscription, flexible=flexible),
        pack_bytes(member.assignment, flexible=flexible),
        NO_TAGS if flexible else b"",
    )
