"""SyncGroup: the leader's assignment.

Invariant: no assignment is answered before it is committed, and a generation has one at most.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from echoless.coordinators.effects import Reply
from echoless.coordinators.events import Now
from echoless.coordinators.groups.answers import SyncAnswer
from echoless.coordinators.groups.append_errors import sync_code
from echoless.coordinators.groups.bounds import GroupBounds
from echoless.coordinators.groups.classic import membership, sessions
from echoless.coordinators.groups.classic.member import Member
from echoless.coordinators.groups.classic.membership import generation_error
from echoless.coordinators.groups.classic.rebalances import Rebalances
from echoless.coordinators.groups.effects import Effects, replied
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.requests import SyncGroup
from echoless.coordinators.groups.store import GroupStore
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.group_keys import GroupKey


class _Assignments(NamedTuple):
    """The assignments of a generation that are being stored."""

    group: Group
    generation_id: int
    by_member: dict[str, bytes]


class Syncs:
    """Answers SyncGroup, at once or when the assignment is stored."""

    def __init__(self, bounds: GroupBounds, rebalances: Rebalances) -> None:
        self._bounds = bounds
        self._rebalances = rebalances

    def handle(self, store: GroupStore, reply_id: int, request: SyncGroup, now: Now) -> Effects:
        """Answer the request, or let it wait for the assignment."""
        group = store.find(request.group_id)
        code = _flaw(group, request)
        if group is None or code is not ErrorCode.NONE:
            return [Reply(reply_id, SyncAnswer(code))]
        member = group.members[request.member_id]
        if group.state is GroupState.STABLE:
            effects = self._rebalances.note_sync(group, member)
            effects += sessions.extend(group, member, now)
            effects.append(Reply(reply_id, _assigned(group, member)))
            return effects
        earlier, member.sync_reply = member.sync_reply, reply_id
        effects = replied(earlier, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
        effects += self._rebalances.note_sync(group, member)
        if member.member_id == group.leader and group.assignment_token is None:
            effects += self._store(store, group, dict(request.assignments), now)
        return effects

    def _store(self, store: GroupStore, group: Group, given: dict[str, bytes], now: Now) -> Effects:
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        size = sum(map(len, assignments.values()))
        sharer = store.shares.account(group.group_id).sharer
        if not self._bounds.has_room_for_assignments(group, size, sharer):
            code = ErrorCode.GROUP_MAX_SIZE_REACHED
            return self._rebalances.assignment_failed(store, group, code, now)
        record = (GroupKey(group.group_id), group.value(assignments))
        storing = _Assignments(group, group.generation_id, assignments)
        stored = partial(self._stored, store, storing)
        append = store.appends.begin(group, [record], stored)
        group.assignment_token = append.token
        return [append]

    def _stored(
        self, store: GroupStore, assigned: _Assignments, code: ErrorCode, now: Now
    ) -> Effects:
        group, generation_id, assignments = assigned
        if (
            group.state is not GroupState.COMPLETING_REBALANCE
            or group.generation_id != generation_id
        ):
            return []  # another rebalance has begun, which has answered all who waited
        group.assignment_token = None
        if code is not ErrorCode.NONE:
            return self._rebalances.assignment_failed(store, group, sync_code(code), now)
        group.state = GroupState.STABLE
        group.state_timestamp = now.wall_ms
        effects: Effects = []
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync_reply is not None:
                effects += sessions.extend(group, member, now)
                effects += membership.answer_sync(member, _assigned(group, member))
        return effects


def _flaw(group: Group | None, request: SyncGroup) -> ErrorCode:
    if request.names_protocol and None in (request.protocol_type, request.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    code = generation_error(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    if code is not ErrorCode.NONE:
        return code
    if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (
        None,
        group.protocol_name,
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE or group.generation_token is not None:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _assigned(group: Group, member: Member) -> SyncAnswer:
    return SyncAnswer(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
