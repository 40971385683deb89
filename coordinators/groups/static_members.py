"""Static members that return (KIP-345): one that joins without an id, under an instance id that the group knows.

The new member id replaces the old one in place. A stable group keeps its generation and its assignment if the choice
of the protocol stays the same; the new id is stored before it is answered, and taken back if that fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from echoless.coordinators.groups.answers import JoinAnswer, SyncAnswer
from echoless.coordinators.groups.append_errors import group_code
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.groups import Groups
from echoless.coordinators.groups.log_names import shown
from echoless.coordinators.groups.member import Member
from echoless.coordinators.groups.membership import Membership
from echoless.coordinators.groups.rebalances import Rebalances, joined_members
from echoless.coordinators.groups.requests import JoinGroup
from echoless.coordinators.groups.sessions import Sessions
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.group_keys import GroupKey


@dataclass(slots=True, eq=False)
class _Replacement:
    """A member whose new id is being stored, and what it was before."""

    group: Group
    member: Member
    reply_id: int
    request: JoinGroup
    generation_id: int
    old_member_id: str
    old_leader: str
    old_protocols: tuple[tuple[str, bytes], ...]


class StaticMembers:
    """Replaces the ids of static members."""

    def __init__(
        self, groups: Groups, membership: Membership, sessions: Sessions, rebalances: Rebalances
    ) -> None:
        self._groups = groups
        self._membership = membership
        self._sessions = sessions
        self._rebalances = rebalances

    def replace(self, group: Group, member: Member, reply_id: int, request: JoinGroup) -> None:
        """Give the member that has returned a new id; the group rebalances if it must."""
        if not self._membership.has_room_for(group, request.protocols, member.protocols):
            refused = JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
            self._groups.reply(reply_id, refused)
            return
        replacement = _Replacement(
            group,
            member,
            reply_id,
            request,
            group.generation_id,
            member.member_id,
            group.leader or "",
            member.protocols,
        )
        self._fence(group, member)
        self._rename(group, member, f"{request.group_instance_id}-{request.uuid}")
        self._note(replacement)
        self._membership.set_protocols(group, member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id, member.client_host = request.client_id, request.client_host
        group.wait_in_join(member, reply_id)
        if member.is_new:
            self._sessions.wait(group, member, self._groups.config.new_member_join_timeout_ms)
        else:
            self._sessions.extend(group, member)
        if group.state is GroupState.STABLE and group.choose_protocol() == group.protocol_name:
            self._store(replacement)
        else:
            reason = f"static member {shown(request.group_instance_id)} returns"
            self._rebalances.begin(group, reason)

    def _fence(self, group: Group, member: Member) -> None:
        code = ErrorCode.FENCED_INSTANCE_ID
        self._groups.reply(group.take_join_reply(member), JoinAnswer(code, member.member_id))
        self._groups.reply(member.sync_reply, SyncAnswer(code))
        member.sync_reply = None

    def _rename(self, group: Group, member: Member, member_id: str) -> None:
        self._sessions.end(group, member)
        group.rename(member, member_id)

    def _note(self, replacement: _Replacement) -> None:
        member, request = replacement.member, replacement.request
        self._groups.note(
            f"static member {shown(request.group_instance_id)} of group {shown(request.group_id)} is fenced: "
            f"{shown(replacement.old_member_id)} on {member.client_host} gives way to "
            f"{shown(member.member_id)} on {request.client_host}"
        )

    def _store(self, replacement: _Replacement) -> None:
        group = replacement.group
        assignments = {one.member_id: one.assignment for one in group.members.values()}
        record = (GroupKey(group.group_id), group.value(assignments))
        self._groups.append(group, [record], partial(self._stored, replacement))

    def _stored(self, replacement: _Replacement, code: ErrorCode) -> None:
        group, member = replacement.group, replacement.member
        if (
            member.join_reply != replacement.reply_id
            or group.state is not GroupState.STABLE
            or group.generation_id != replacement.generation_id
        ):
            return  # it has left, was replaced again, or waits for the end of a join phase that began since
        reply_id = group.take_join_reply(member)
        if code is ErrorCode.NONE:
            self._groups.reply(reply_id, self._answer(replacement))
            return
        self._rename(group, member, replacement.old_member_id)
        self._membership.set_protocols(group, member, replacement.old_protocols)
        self._sessions.extend(group, member)
        self._groups.reply(reply_id, JoinAnswer(group_code(code), ""))

    def _answer(self, replacement: _Replacement) -> JoinAnswer:
        """The current generation; before version 9 with the old leader, so that no one assigns."""
        group, member = replacement.group, replacement.member
        answer = self._rebalances.current_answer(group, member, with_members=False)
        if not replacement.request.can_skip_assignment:
            return answer._replace(leader=replacement.old_leader)
        if member.member_id != group.leader:
            return answer
        return answer._replace(members=joined_members(group), skip_assignment=True)
