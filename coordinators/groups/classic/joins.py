"""JoinGroup: who may join, with what id, and whether the group rebalances for it.

Static members that return are in `static_members.py`.
"""

from __future__ import annotations

from typing import Final

from echoless.coordinators.effects import Reply
from echoless.coordinators.events import Now
from echoless.coordinators.groups.answers import JoinAnswer
from echoless.coordinators.groups.bounds import GroupBounds
from echoless.coordinators.groups.classic import membership, sessions
from echoless.coordinators.groups.classic.member import Member, joining_member, protocol_bytes
from echoless.coordinators.groups.classic.membership import member_error
from echoless.coordinators.groups.classic.rebalances import Rebalances, current_answer
from echoless.coordinators.groups.classic.static_members import StaticMembers
from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.effects import Effects
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.log_names import shown
from echoless.coordinators.groups.requests import JoinGroup
from echoless.coordinators.groups.store import GroupStore
from echoless.protocol.errors import ErrorCode

_NO_MEMBER: Final = ""
_REASON_CHARACTERS_MAX: Final = 200


class Joins:
    """Answers JoinGroup, at once or at the end of the join phase."""

    def __init__(self, bounds: GroupBounds, rebalances: Rebalances) -> None:
        self._bounds = bounds
        self._rebalances = rebalances
        self._static_members = StaticMembers(bounds, rebalances)

    def handle(self, store: GroupStore, reply_id: int, request: JoinGroup, now: Now) -> Effects:
        """Answer the request, or let it wait."""
        code = _flaw(request, self._bounds.config)
        if code is not ErrorCode.NONE:
            return _refused(reply_id, request.member_id, code)
        group = store.find(request.group_id)
        if group is None:
            if request.member_id:
                return _refused(reply_id, request.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            if not self._bounds.has_room_for_group(request.sharer):
                return _refused(reply_id, _NO_MEMBER, ErrorCode.POLICY_VIOLATION)
            group = store.create(request.group_id, request.sharer)
        store.shares.adopt(request.group_id, request.sharer)
        return self._join(store, group, reply_id, request, now)

    def _join(
        self, store: GroupStore, group: Group, reply_id: int, request: JoinGroup, now: Now
    ) -> Effects:
        member = group.members.get(request.member_id)
        if not self._has_room(group, member):
            effects: Effects = []
            if member is not None:
                reason = "exceeds the group's size"
                effects = self._rebalances.remove(store, group, [member], reason, now)
            return effects + _refused(reply_id, _NO_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
        if group.state is GroupState.DEAD:
            return _refused(reply_id, request.member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not group.supports(request.protocol_type, request.protocols):
            return _refused(reply_id, request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.member_id:
            return self._join_unknown(store, group, reply_id, request, now)
        if request.member_id in group.pending_members:
            return self._join_with_id_handed_out(store, group, reply_id, request, now)
        return self._join_again(store, group, reply_id, request, now)

    def _has_room(self, group: Group, member: Member | None) -> bool:
        most = self._bounds.config.group_max_size
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                is_waiting = member is not None and member.join_reply is not None
                return is_waiting or group.waiting_joins < most
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                return member is not None or len(group.members) < most
            case _:
                return True

    # --- new members

    def _join_unknown(
        self, store: GroupStore, group: Group, reply_id: int, request: JoinGroup, now: Now
    ) -> Effects:
        instance_id = request.group_instance_id
        returning = group.static_members.get(instance_id) if instance_id is not None else None
        if returning is not None:
            member = group.members[returning]
            return self._static_members.replace(store, group, member, reply_id, request, now=now)
        if not self._bounds.has_room_in(group, request.sharer):
            return _refused(reply_id, _NO_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
        if instance_id is not None:
            return self._add(
                store, group, f"{instance_id}-{request.uuid}", reply_id, request, now=now
            )
        member_id = f"{request.client_id}-{request.uuid}"
        if not request.requires_known_member_id:
            return self._add(store, group, member_id, reply_id, request, now=now)
        effects = membership.hand_out(store, group, member_id, request, now)
        effects += self._bound_ids(store, member_id, now)
        return effects + _refused(reply_id, member_id, ErrorCode.MEMBER_ID_REQUIRED)

    def _bound_ids(self, store: GroupStore, newest: str, now: Now) -> Effects:
        """Forget an id that was handed out earlier if there are too many."""
        if not self._bounds.has_too_many_ids:
            return []
        found = store.ids.next_to_give_way()
        if found is None or found[1] == newest:
            return []
        group = store.live[found[0]]
        effects = membership.take_back(store, group, found[1])
        effects += self._rebalances.try_complete(store, group, now)
        store.settle(group)
        return effects

    def _join_with_id_handed_out(
        self, store: GroupStore, group: Group, reply_id: int, request: JoinGroup, now: Now
    ) -> Effects:
        if request.group_instance_id is not None:  # ids are handed out to dynamic members only
            return _refused(reply_id, request.member_id, ErrorCode.UNKNOWN_SERVER_ERROR)
        effects = membership.take_back(store, group, request.member_id)
        return effects + self._add(store, group, request.member_id, reply_id, request, now=now)

    def _add(
        self,
        store: GroupStore,
        group: Group,
        member_id: str,
        reply_id: int,
        request: JoinGroup,
        *,
        now: Now,
    ) -> Effects:
        if not self._bounds.has_room_for_member(
            request.sharer
        ) or not self._bounds.has_room_for_protocols(group, request.protocols, request.sharer):
            return _refused(reply_id, _NO_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
        member = joining_member(request, member_id)
        member.join_reply = reply_id
        if not group.members:
            group.protocol_type = request.protocol_type
        if not member.was_given_id and not member.is_static:
            store.unnamed[reply_id] = (group, member)
        membership.add(store, group, member, request.sharer)
        timeout_ms = self._bounds.config.new_member_join_timeout_ms
        effects = sessions.wait(group, member, timeout_ms, now)
        group.was_joined_since_delay = True
        reason = f"{shown(member_id)} joins{_quoted(request.reason)}"
        return effects + self._rebalances.begin(store, group, reason, now)

    # --- members that join again

    def _join_again(
        self, store: GroupStore, group: Group, reply_id: int, request: JoinGroup, now: Now
    ) -> Effects:
        code = member_error(group, request.member_id, request.group_instance_id)
        if code is not ErrorCode.NONE:
            return _refused(reply_id, request.member_id, code)
        member = group.members[request.member_id]
        if not self._bounds.has_room_for_protocols(
            group, request.protocols, request.sharer, member.protocols
        ):
            return _refused(reply_id, request.member_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
        is_unchanged = member.protocols == request.protocols
        match group.state:
            case GroupState.COMPLETING_REBALANCE if is_unchanged:
                if group.generation_token is None:
                    return [Reply(reply_id, current_answer(group, member))]
                return _wait(store, group, member, reply_id)
            case GroupState.STABLE if is_unchanged and member.member_id != group.leader:
                return [Reply(reply_id, current_answer(group, member))]
            case _:
                return self._update(store, group, member, reply_id, request, now=now)

    def _update(
        self,
        store: GroupStore,
        group: Group,
        member: Member,
        reply_id: int,
        request: JoinGroup,
        *,
        now: Now,
    ) -> Effects:
        membership.set_protocols(store, group, member, request.protocols, request.sharer)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        effects = _wait(store, group, member, reply_id)
        reason = f"{shown(member.member_id)} rejoins{_quoted(request.reason)}"
        return effects + self._rebalances.begin(store, group, reason, now)


def _flaw(request: JoinGroup, config: GroupCoordinatorConfig) -> ErrorCode:
    """NONE unless the request is invalid, whatever the group."""
    shortest_ms, longest_ms = (
        config.group_min_session_timeout_ms,
        config.group_max_session_timeout_ms,
    )
    if not shortest_ms <= request.session_timeout_ms <= longest_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    names = [name for name, _ in request.protocols]
    names += [request.protocol_type, request.group_instance_id or "", request.client_id]
    if (
        request.rebalance_timeout_ms < 0
        or len(request.protocols) > config.member_protocols_max
        or max(map(len, names)) > config.name_bytes_max
        or protocol_bytes(request.protocols) > config.member_bytes_max
    ):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _wait(store: GroupStore, group: Group, member: Member, reply_id: int) -> Effects:
    earlier = group.wait_in_join(member, reply_id)
    refused = JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
    return membership.answer_earlier_join(store, earlier, refused)


def _refused(reply_id: int, member_id: str, code: ErrorCode) -> Effects:
    return [Reply(reply_id, JoinAnswer(code, member_id))]


def _quoted(reason: str) -> str:
    """The reason that a client gives, for a log line."""
    return f" because {reason[:_REASON_CHARACTERS_MAX]!r}" if reason else ""
