"""The requests of a group coordinator: one value for all versions of an API, made by its handler.

A field that a version lacks has the default that Kafka gives it. Facts that depend on the version are fields here, so
that the coordinator knows no versions. Topics, permissions and the ids of groups are checked before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from echoless.coordinators.effects import StateRecord
from echoless.coordinators.groups.consumer.requests import ConsumerDescribe, ConsumerHeartbeat
from echoless.coordinators.groups.records import GroupRecord

NO_GENERATION = -1
NO_RETENTION = -1
NO_LEADER_EPOCH = -1


class JoinGroup(NamedTuple):
    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    """The address as Kafka writes it: `/127.0.0.1`."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    """Version 0 has none: the session timeout."""
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata, the preferred one first."""
    uuid: str
    """A fresh random UUID: a new member's id ends with it."""
    requires_known_member_id: bool = True
    """From version 4 on a dynamic member is given its id first (79) and joins with it."""
    can_skip_assignment: bool = True
    """From version 9 on the leader may be instructed to keep the assignment."""
    reason: str = ""
    sharer: str = ""
    """Whoever the member counts towards (`broker/network/sharer.py`); empty: no one."""


class SyncGroup(NamedTuple):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    assignments: tuple[tuple[str, bytes], ...]
    """Member id and its assignment; from the leader only."""
    protocol_type: str | None = None
    protocol_name: str | None = None
    names_protocol: bool = False
    """From version 5 on type and name of the protocol must be given."""


class Heartbeat(NamedTuple):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class LeavingMember(NamedTuple):
    member_id: str
    group_instance_id: str | None = None
    reason: str = ""


class LeaveGroup(NamedTuple):
    """Before version 3 there is one member; the handler puts its code on top."""

    group_id: str
    members: tuple[LeavingMember, ...]


class CommittedPartition(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


class PreparedOffsets(NamedTuple):
    """The records of a commit, made before it is judged."""

    records: tuple[GroupRecord, ...]
    packed: tuple[StateRecord, ...]
    batch: bytes
    """The batch of these records alone."""


class OffsetCommit(NamedTuple):
    """Only the partitions that exist and that the principal may read."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    partitions: tuple[CommittedPartition, ...]
    retention_time_ms: int = NO_RETENTION
    """Versions 2 to 4."""
    knows_missing_groups: bool = False
    """From version 9 on a group that does not exist is GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION.

    Only then may the generation be the epoch of a member of the consumer protocol.
    """
    sharer: str = ""
    """Whoever the group counts towards if it is new, or no one's."""
    prepared: PreparedOffsets | None = None
    """The records of all partitions, if they are many (`prepared_commit.py`)."""


class TransactionalOffsetCommit(NamedTuple):
    """Offsets that count when the producer's transaction is committed; its coordinator has agreed to it.

    Only the partitions that exist and that the principal may read.
    """

    group_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[CommittedPartition, ...]
    generation_id: int = NO_GENERATION
    """Generation or member epoch; like the member it is given from version 3 on, and by no one who commits for others."""
    member_id: str = ""
    group_instance_id: str | None = None
    sharer: str = ""
    may_append: Callable[[], bool] | None = None
    """Asked when the offsets are appended: see `InTransaction`."""
    prepared: PreparedOffsets | None = None
    """The records of all partitions, if they are many (`prepared_commit.py`)."""


class OffsetFetch(NamedTuple):
    group_id: str
    partitions: tuple[tuple[str, int], ...] | None
    """Topic and partition; None for all."""
    require_stable: bool = False
    member_id: str | None = None
    """The member that asks, from version 9 on; None is not checked."""
    member_epoch: int = -1


class OffsetDelete(NamedTuple):
    """Only the partitions that exist."""

    group_id: str
    partitions: tuple[tuple[str, int], ...]


class DescribeGroup(NamedTuple):
    group_id: str


class DeleteGroup(NamedTuple):
    group_id: str


GroupRequest = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | TransactionalOffsetCommit
    | OffsetFetch
    | OffsetDelete
    | DescribeGroup
    | DeleteGroup
    | ConsumerHeartbeat
    | ConsumerDescribe
)
