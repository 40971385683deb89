"""Leaders to ask instead, with their addresses (KIP-951), in the answers to Produce (from v10 on) and Fetch (from v16 on).

A row names the leader and its epoch, the answer as a whole the address of each leader named, once: a client that does not
know the broker, or knows it by another address, goes on at once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from echoless.protocol.headers import NO_TAGS, write_unsigned_varint

_INT32: Final = struct.Struct(">i")
_LEADER: Final = struct.Struct(">ii")
_ENDPOINTS_TAG: Final = 0


class NodeEndpoint(NamedTuple):
    """A broker's address for the client that is answered."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class LeaderHint(NamedTuple):
    """The leader of a partition, as the broker that is not knows it."""

    leader_id: int
    leader_epoch: int
    endpoint: NodeEndpoint | None = None
    """The leader's address; None if this broker does not know it."""


def encode_leader(tag: int, hint: LeaderHint) -> bytes:
    """The tagged fields of a row that has no other: 9 bytes under `tag`."""
    return b"\x01" + bytes((tag, 9)) + _LEADER.pack(hint.leader_id, hint.leader_epoch) + NO_TAGS


def encode_endpoints(hints: Iterable[LeaderHint]) -> bytes:
    """The tagged fields of an answer that has no other: the addresses of these leaders, each once, if there are any."""
    endpoints = {hint.endpoint: None for hint in hints if hint.endpoint is not None}
    if not endpoints:
        return NO_TAGS
    rows = b"".join(map(_endpoint, endpoints))
    listed = write_unsigned_varint(len(endpoints) + 1) + rows
    return b"\x01" + bytes((_ENDPOINTS_TAG,)) + write_unsigned_varint(len(listed)) + listed


def _endpoint(endpoint: NodeEndpoint) -> bytes:
    return b"".join(
        (
            _INT32.pack(endpoint.node_id),
            _compact(endpoint.host),
            _INT32.pack(endpoint.port),
            b"\x00" if endpoint.rack is None else _compact(endpoint.rack),
            NO_TAGS,
        )
    )


def _compact(text: str) -> bytes:
    data = text.encode()
    return write_unsigned_varint(len(data) + 1) + data
