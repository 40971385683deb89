"""The responses of JoinGroup and SyncGroup, packed by hand: with kio they cost more than the rebalance.

JoinGroup, by version: v2 throttle time i32; error code i16, generation i32; v7 type of the protocol; its name, leader;
v9 whether to skip the assignment; member id; members: id, v5 instance id, metadata. v6 is flexible.
SyncGroup: v1 throttle time; error code; v5 type and name of the protocol; assignment. v4 is flexible.
`tests/protocol/test_group_responses.py` compares every version with kio. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Final

from echoless.protocol.headers import NO_TAGS
from echoless.protocol.state_records.fields import pack_bytes, pack_size, pack_string

_JOIN_FLEXIBLE_FROM, _SYNC_FLEXIBLE_FROM = 6, 4
_JOIN_THROTTLE_TIME_FROM, _SYNC_THROTTLE_TIME_FROM = 2, 1
_INSTANCE_IDS_FROM, _PROTOCOL_TYPE_FROM, _SKIP_FROM = 5, 7, 9
_SYNC_NAMES_FROM: Final = 5
_NOT_THROTTLED: Final = bytes(4)
_CODE: Final = struct.Struct(">h")
_CODE_AND_GENERATION: Final = struct.Struct(">hi")


def encode_join_group_response(
    version: int,
    *,
    error_code: int,
    generation_id: int,
    protocol_type: str | None,
    protocol_name: str | None,
    leader: str,
    skip_assignment: bool,
    member_id: str,
    members: Collection[tuple[str, str | None, bytes]],
) -> bytes:
    """The body of the response. A member: its id, its instance id and its metadata."""
    flexible = version >= _JOIN_FLEXIBLE_FROM
    parts = [_NOT_THROTTLED] if version >= _JOIN_THROTTLE_TIME_FROM else []
    parts.append(_CODE_AND_GENERATION.pack(error_code, generation_id))
    if version >= _PROTOCOL_TYPE_FROM:
        parts.append(pack_string(protocol_type, flexible=flexible))
    else:
        protocol_name = protocol_name or ""  # it may be null since then
    parts += (
        pack_string(protocol_name, flexible=flexible),
        pack_string(leader, flexible=flexible),
        (b"\1" if skip_assignment else b"\0") if version >= _SKIP_FROM else b"",
        pack_string(member_id, flexible=flexible),
        pack_size(len(members), flexible=flexible),
    )
    has_instances = version >= _INSTANCE_IDS_FROM
    for name, instance_id, metadata in members:
        parts.append(pack_string(name, flexible=flexible))
        if has_instances:
            parts.append(pack_string(instance_id, flexible=flexible))
        parts.append(pack_bytes(metadata, flexible=flexible))
        if flexible:
            parts.append(NO_TAGS)
    if flexible:
        parts.append(NO_TAGS)
    return b"".join(parts)


def encode_sync_group_response(
    version: int,
    *,
    error_code: int,
    protocol_type: str | None,
    protocol_name: str | None,
    assignment: bytes,
) -> bytes:
    """The body of the response."""
    flexible = version >= _SYNC_FLEXIBLE_FROM
    parts = [_NOT_THROTTLED] if version >= _SYNC_THROTTLE_TIME_FROM else []
    parts.append(_CODE.pack(error_code))
    if version >= _SYNC_NAMES_FROM:
        parts += (
            pack_string(protocol_type, flexible=True),
            pack_string(protocol_name, flexible=True),
        )
    parts.append(pack_bytes(assignment, flexible=flexible))
    if flexible:
        parts.append(NO_TAGS)
    return b"".join(parts)
