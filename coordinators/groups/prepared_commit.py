"""The records of a commit of many partitions, made beside the event loop before the coordinator judges it.

Judging, appending and publishing are steps of the loop, and all of a commit is stored or none. Packing 5,000 records and
making their batch takes longer than the three together. The coordinator uses what was prepared if it accepts every
partition; else it packs those that it accepts. The time of the commit is that of the preparation.
"""

from __future__ import annotations

from typing import TypeVar

from echoless.coordinators.groups.records import GroupRecord, packed
from echoless.coordinators.groups.requests import (
    NO_RETENTION,
    CommittedPartition,
    OffsetCommit,
    PreparedOffsets,
    TransactionalOffsetCommit,
)
from echoless.protocol.records import Record, build_batch
from echoless.protocol.state_records.fields import STRING_BYTES_MAX
from echoless.protocol.state_records.group_keys import OffsetKey
from echoless.protocol.state_records.offset_value import NO_EXPIRY, OffsetValue

Commit = TypeVar("Commit", OffsetCommit, TransactionalOffsetCommit)


def prepare(request: Commit, wall_ms: int) -> Commit:
    """Returns the request with the records of all its partitions, unless one of them can never be stored."""
    if any(not can_be_packed(one.metadata) for one in request.partitions):
        return request
    expire_ms = NO_EXPIRY
    if isinstance(request, OffsetCommit):
        expire_ms = expire_timestamp(request, wall_ms)
    records = [
        offset_record(request.group_id, one, expire_ms, wall_ms) for one in request.partitions
    ]
    states = [packed(record) for record in records]
    batch = build_batch([Record(0, wall_ms, one.key, one.value) for one in states])
    return request._replace(prepared=PreparedOffsets(tuple(records), tuple(states), batch))


def expire_timestamp(request: OffsetCommit, wall_ms: int) -> int:
    """The time at which the offsets expire, if the request says so (versions 2 to 4)."""
    if request.retention_time_ms == NO_RETENTION:
        return NO_EXPIRY
    return wall_ms + request.retention_time_ms


def offset_record(
    group_id: str, one: CommittedPartition, expire_ms: int, wall_ms: int
) -> GroupRecord:
    """The record of one partition."""
    topic, partition, offset, leader_epoch, metadata = one
    value = OffsetValue(offset, leader_epoch, metadata, wall_ms, expire_ms)
    return OffsetKey(group_id, topic, partition), value


def can_be_packed(metadata: str) -> bool:
    """Whether it fits a record, whatever `offset.metadata.max.bytes` allows: a character takes up to four bytes."""
    return len(metadata) * 4 <= STRING_BYTES_MAX or len(metadata.encode()) <= STRING_BYTES_MAX
