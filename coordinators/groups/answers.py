"""The answers of a group coordinator: one value for all versions of an API, translated by its handler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from echoless.coordinators.groups.consumer.requests import (
    ConsumerDescribe,
    ConsumerDescribeAnswer,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from echoless.coordinators.groups.requests import (
    NO_GENERATION,
    NO_LEADER_EPOCH,
    DeleteGroup,
    DescribeGroup,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
    TransactionalOffsetCommit,
)
from echoless.protocol.errors import ErrorCode

NO_OFFSET = -1


class JoinedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    error_code: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    """The protocol chosen; before version 7 None is sent as ""."""
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    """All members, for the leader only."""
    skip_assignment: bool = False


class SyncAnswer(NamedTuple):
    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class HeartbeatAnswer(NamedTuple):
    error_code: ErrorCode


class LeftMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode


class LeaveAnswer(NamedTuple):
    error_code: ErrorCode
    members: tuple[LeftMember, ...] = ()


class OffsetCommitAnswer(NamedTuple):
    error_codes: tuple[ErrorCode, ...]
    """In the order of the partitions of the request."""


class FetchedOffset(NamedTuple):
    topic: str
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error_code: ErrorCode = ErrorCode.NONE


class OffsetFetchAnswer(NamedTuple):
    error_code: ErrorCode
    partitions: Iterable[FetchedOffset] = ()
    """Made lazily of a snapshot, to be read once: there may be many, so the handler takes turns."""


class OffsetDeleteAnswer(NamedTuple):
    error_code: ErrorCode
    error_codes: tuple[ErrorCode, ...] = ()
    """In the order of the partitions of the request; empty with an error of the group."""


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribeAnswer(NamedTuple):
    error_code: ErrorCode
    """GROUP_ID_NOT_FOUND for a group that does not exist: NONE before version 6, with the same state `Dead`."""
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


class DeleteAnswer(NamedTuple):
    error_code: ErrorCode


class CommittedOffset(NamedTuple):
    """One of `GroupCoordinator.committed`."""

    group_id: str
    topic: str
    partition: int
    offset: int


class ListedGroup(NamedTuple):
    """A row of ListGroups: not an answer to a request, see `GroupCoordinator.listed`."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str
    epoch: int = 0
    """Epochs are those of a group of the consumer protocol."""
    target_epoch: int = 0


GroupAnswer = (
    JoinAnswer
    | SyncAnswer
    | HeartbeatAnswer
    | LeaveAnswer
    | OffsetCommitAnswer
    | OffsetFetchAnswer
    | OffsetDeleteAnswer
    | DescribeAnswer
    | DeleteAnswer
    | ConsumerHeartbeatAnswer
    | ConsumerDescribeAnswer
)

_WITH_CODE_ALONE: Final[Mapping[type[GroupRequest], Callable[[ErrorCode], GroupAnswer]]] = {
    SyncGroup: SyncAnswer,
    Heartbeat: HeartbeatAnswer,
    LeaveGroup: LeaveAnswer,
    OffsetFetch: OffsetFetchAnswer,
    OffsetDelete: OffsetDeleteAnswer,
    DescribeGroup: DescribeAnswer,
    DeleteGroup: DeleteAnswer,
    ConsumerHeartbeat: ConsumerHeartbeatAnswer,
    ConsumerDescribe: ConsumerDescribeAnswer,
}


def refusal(request: GroupRequest, code: ErrorCode) -> GroupAnswer:
    """The answer to `request` that carries `code` and nothing else: while loading, or once the lead is lost."""
    match request:
        case JoinGroup():
            return JoinAnswer(code, request.member_id)
        case OffsetCommit() | TransactionalOffsetCommit():
            return OffsetCommitAnswer((code,) * len(request.partitions))
        case _:
            return _WITH_CODE_ALONE[type(request)](code)
