"""SyncGroup: the leader's assignment.

Invariant: no assignment is answered before it is committed, and a generation has one at most.
"""

from __future__ import annotations

from functools import partial

from echoless.coordinators.groups.answers import SyncAnswer
from echoless.coordinators.groups.append_errors import sync_code
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.groups import Groups
from echoless.coordinators.groups.member import Member
from echoless.coordinators.groups.membership import generation_error
from echoless.coordinators.groups.rebalances import Rebalances
from echoless.coordinators.groups.requests import SyncGroup
from echoless.coordinators.groups.sessions import Sessions
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.group_keys import GroupKey


class Syncs:
    """Answers SyncGroup, at once or when the assignment is stored."""

    def __init__(self, groups: Groups, sessions: Sessions, rebalances: Rebalances) -> None:
        self._groups = groups
        self._sessions = sessions
        self._rebalances = rebalances

    def handle(self, reply_id: int, request: SyncGroup) -> None:
        """Answer the request, or let it wait for the assignment."""
        group = self._groups.find(request.group_id)
        code = _flaw(group, request)
        if group is None or code is not ErrorCode.NONE:
            self._groups.reply(reply_id, SyncAnswer(code))
            return
        member = group.members[request.member_id]
        if group.state is GroupState.STABLE:
            self._rebalances.note_sync(group, member)
            self._sessions.extend(group, member)
            self._groups.reply(reply_id, _assigned(group, member))
            return
        earlier, member.sync_reply = member.sync_reply, reply_id
        self._groups.reply(earlier, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
        self._rebalances.note_sync(group, member)
        if member.member_id == group.leader and group.assignment_token is None:
            self._store(group, dict(request.assignments))

    def _store(self, group: Group, given: dict[str, bytes]) -> None:
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        size = sum(map(len, assignments.values()))
        most = self._groups.config.group_bytes_max
        if group.protocol_bytes + size > most or not self._groups.has_room_for(size):
            self._rebalances.assignment_failed(group, ErrorCode.GROUP_MAX_SIZE_REACHED)
            return
        record = (GroupKey(group.group_id), group.value(assignments))
        stored = partial(self._stored, group, group.generation_id, assignments)
        group.assignment_token = self._groups.append(group, [record], stored)

    def _stored(
        self, group: Group, generation_id: int, assignments: dict[str, bytes], code: ErrorCode
    ) -> None:
        if (
            group.state is not GroupState.COMPLETING_REBALANCE
            or group.generation_id != generation_id
        ):
            return  # another rebalance has begun, which has answered all who waited
        group.assignment_token = None
        if code is not ErrorCode.NONE:
            self._rebalances.assignment_failed(group, sync_code(code))
            return
        group.state = GroupState.STABLE
        group.state_timestamp = self._groups.now.wall_ms
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync_reply is not None:
                self._sessions.extend(group, member)
                self._groups.reply(member.sync_reply, _assigned(group, member))
                member.sync_reply = None


def _flaw(group: Group | None, request: SyncGroup) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
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
