"""Static members that return (KIP-345): one that joins without an id, under an instance id that the group knows.

The new member id replaces the old one in place. A stable group keeps its generation and its assignment if the choice
of the protocol stays the same; the new id is stored before it is answered, and taken back if that fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from echoless.coordinators.append_errors import coordinator_code
from echoless.coordinators.effects import LogLine, Reply
from echoless.coordinators.events import Now
from echoless.coordinators.groups.answers import JoinAnswer, SyncAnswer
from echoless.coordinators.groups.bounds import GroupBounds
from echoless.coordinators.groups.classic import membership, sessions
from echoless.coordinators.groups.classic.member import Member
from echoless.coordinators.groups.classic.rebalances import (
    Rebalances,
    current_answer,
    joined_members,
)
from echoless.coordinators.groups.effects import Effects
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.log_names import shown
from echoless.coordinators.groups.requests import JoinGroup
from echoless.coordinators.groups.store import GroupStore
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

    def __init__(self, bounds: GroupBounds, rebalances: Rebalances) -> None:
        self._bounds = bounds
        self._rebalances = rebalances

    def replace(
        self,
        store: GroupStore,
        group: Group,
        member: Member,
        reply_id: int,
        request: JoinGroup,
        *,
        now: Now,
    ) -> Effects:
        """Give the member that has returned a new id; the group rebalances if it must."""
        if not self._bounds.has_room_for_protocols(
            group, request.protocols, request.sharer, member.protocols
        ):
            return [Reply(reply_id, JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))]
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
        effects = _fence(store, group, member)
        effects += _rename(store, group, member, f"{request.group_instance_id}-{request.uuid}")
        effects.append(_line(replacement))
        effects += self._update(store, replacement, now)
        if group.state is GroupState.STABLE and group.choose_protocol() == group.protocol_name:
            return effects + self._store(store, replacement)
        reason = f"static member {shown(request.group_instance_id)} returns"
        return effects + self._rebalances.begin(store, group, reason, now)

    def _update(self, store: GroupStore, replacement: _Replacement, now: Now) -> Effects:
        """Take the values of the request; the member waits in Join."""
        group, member, request = replacement.group, replacement.member, replacement.request
        membership.set_protocols(store, group, member, request.protocols, request.sharer)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id, member.client_host = request.client_id, request.client_host
        group.wait_in_join(member, replacement.reply_id)
        if member.is_new:
            timeout_ms = self._bounds.config.new_member_join_timeout_ms
            return sessions.wait(group, member, timeout_ms, now)
        return sessions.extend(group, member, now)

    def _store(self, store: GroupStore, replacement: _Replacement) -> Effects:
        group = replacement.group
        assignments = {one.member_id: one.assignment for one in group.members.values()}
        record = (GroupKey(group.group_id), group.value(assignments))
        return [store.appends.begin(group, [record], partial(_stored, store, replacement))]


def _fence(store: GroupStore, group: Group, member: Member) -> Effects:
    code = ErrorCode.FENCED_INSTANCE_ID
    effects = membership.answer_join(store, group, member, JoinAnswer(code, member.member_id))
    return effects + membership.answer_sync(member, SyncAnswer(code))


def _rename(store: GroupStore, group: Group, member: Member, member_id: str) -> Effects:
    effects = sessions.end(group, member)
    store.shares.rename_member(group.group_id, member.member_id, member_id)
    group.rename(member, member_id)
    return effects


def _line(replacement: _Replacement) -> LogLine:
    member, request = replacement.member, replacement.request
    return LogLine(
        f"static member {shown(request.group_instance_id)} of group {shown(request.group_id)} is fenced: "
        f"{shown(replacement.old_member_id)} on {member.client_host} gives way to "
        f"{shown(member.member_id)} on {request.client_host}"
    )


def _stored(store: GroupStore, replacement: _Replacement, code: ErrorCode, now: Now) -> Effects:
    group, member = replacement.group, replacement.member
    if (
        member.join_reply != replacement.reply_id
        or group.state is not GroupState.STABLE
        or group.generation_id != replacement.generation_id
    ):
        return []  # it has left, was replaced again, or waits for the end of a join phase that began since
    if code is ErrorCode.NONE:
        return membership.answer_join(store, group, member, _answer(replacement))
    reply_id = group.take_join_reply(member)
    effects = _rename(store, group, member, replacement.old_member_id)
    sharer = replacement.request.sharer
    membership.set_protocols(store, group, member, replacement.old_protocols, sharer)
    effects += sessions.extend(group, member, now)
    refused = JoinAnswer(coordinator_code(code), "")
    return effects + membership.answer_earlier_join(store, reply_id, refused)


def _answer(replacement: _Replacement) -> JoinAnswer:
    """The current generation; before version 9 with the old leader, so that no one assigns."""
    group, member = replacement.group, replacement.member
    answer = current_answer(group, member, with_members=False)
    if not replacement.request.can_skip_assignment:
        return answer._replace(leader=replacement.old_leader)
    if member.member_id != group.leader:
        return answer
    return answer._replace(members=joined_members(group), skip_assignment=True)
