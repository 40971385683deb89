"""The Metadata response, packed by hand: with kio a topic of 6,000 partitions took 100 ms each time.

Layout by version: v1 adds racks, the controller and `is_internal`; v2 the cluster id; v3 the
throttle time in front; v5 offline replicas; v7 leader epochs; v8 authorised operations (of the
cluster up to v10); v9 is flexible; v10 adds topic ids; from v12 on a name may be null; v13
ends with an error code of the whole answer (KIP-1102), by which a client would start anew from its bootstrap servers.
`tests/protocol/test_metadata_response.py` compares every version with kio.

A topic is packed separately, in pieces if need be, so that it can be cached. Pure.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from echoless.protocol.errors import ErrorCode
from echoless.protocol.headers import NO_TAGS, write_unsigned_varint

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_PARTITION: Final = struct.Struct(">hii")
_PARTITION_V7: Final = struct.Struct(">hiii")
_OFFLINE_FROM, _EPOCHS_FROM, _OPERATIONS_FROM, _FLEXIBLE_FROM, _TOPIC_IDS_FROM = 5, 7, 8, 9, 10
_NULL_NAMES_FROM: Final = 12
_ERROR_CODE_FROM: Final = 13
_CLUSTER_OPERATIONS: Final = range(8, 11)
_NO_ID: Final = bytes(16)


class PartitionRow(NamedTuple):
    """One partition, as the cluster knows it."""

    error_code: ErrorCode
    partition_index: int
    leader_id: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline_replicas: Sequence[int]


class BrokerRow(NamedTuple):
    """One broker and its address."""

    broker_id: int
    host: str
    port: int


def encode_partitions(version: int, rows: Iterable[PartitionRow]) -> bytes:
    """Packs some partitions of a topic; the results can be concatenated."""
    parts: list[bytes] = []
    lists: dict[tuple[int, ...], bytes] = {}
    for error_code, index, leader_id, leader_epoch, *ids in rows:
        if version >= _EPOCHS_FROM:
            parts.append(_PARTITION_V7.pack(error_code, index, leader_id, leader_epoch))
        else:
            parts.append(_PARTITION.pack(error_code, index, leader_id))
        for one in ids if version >= _OFFLINE_FROM else ids[:2]:
            key = tuple(one)
            packed = lists.get(key)
            if packed is None:
                packed = lists[key] = _ids(version, key)
            parts.append(packed)
        if version >= _FLEXIBLE_FROM:
            parts.append(NO_TAGS)
    return b"".join(parts)


def encode_topic(
    version: int,
    *,
    error_code: ErrorCode,
    name: str | None,
    topic_id: uuid.UUID | None,
    partition_count: int,
    partitions: Iterable[bytes],
    is_internal: bool = False,
) -> bytes:
    """A topic up to its authorised operations, which depend on the request."""
    parts = [_INT16.pack(error_code), _name(version, name)]
    if version >= _TOPIC_IDS_FROM:
        parts.append(_NO_ID if topic_id is None else topic_id.bytes)
    if version >= 1:
        parts.append(b"\x01" if is_internal else b"\x00")
    parts.append(_count(version, partition_count))
    parts.extend(partitions)
    return b"".join(parts)


def encode_metadata_response(
    version: int,
    *,
    brokers: Sequence[BrokerRow],
    cluster_id: str,
    controller_id: int,
    topics: Sequence[tuple[bytes, int]],
    cluster_operations: int,
) -> bytes:
    """The body. `topics`: in order, what `encode_topic` returned, and the operations allowed."""
    end = NO_TAGS if version >= _FLEXIBLE_FROM else b""
    parts = [_INT32.pack(0)] if version >= 3 else []
    parts.append(_count(version, len(brokers)))
    for broker in brokers:
        parts += (_INT32.pack(broker.broker_id), _string(version, broker.host))
        parts.append(_INT32.pack(broker.port))
        if version >= 1:
            parts.append(_NULL_FLEXIBLE if version >= _FLEXIBLE_FROM else _NULL)
        parts.append(end)
    if version >= 2:
        parts.append(_string(version, cluster_id))
    if version >= 1:
        parts.append(_INT32.pack(controller_id))
    parts.append(_count(version, len(topics)))
    for packed, operations in topics:
        parts.append(packed)
        if version >= _OPERATIONS_FROM:
            parts += (_INT32.pack(operations), end)
    if version in _CLUSTER_OPERATIONS:
        parts.append(_INT32.pack(cluster_operations))
    if version >= _ERROR_CODE_FROM:
        parts.append(_INT16.pack(ErrorCode.NONE))
    parts.append(end)
    return b"".join(parts)


_NULL: Final = _INT16.pack(-1)
_NULL_FLEXIBLE: Final = b"\x00"


def _name(version: int, name: str | None) -> bytes:
    if name is None and version >= _NULL_NAMES_FROM:
        return _NULL_FLEXIBLE
    return _string(version, name or "")


def _string(version: int, text: str) -> bytes:
    data = text.encode()
    if version >= _FLEXIBLE_FROM:
        return write_unsigned_varint(len(data) + 1) + data
    return _INT16.pack(len(data)) + data


def _count(version: int, count: int) -> bytes:
    return write_unsigned_varint(count + 1) if version >= _FLEXIBLE_FROM else _INT32.pack(count)


def _ids(version: int, ids: Sequence[int]) -> bytes:
    return _count(version, len(ids)) + struct.pack(f">{len(ids)}i", *ids)
