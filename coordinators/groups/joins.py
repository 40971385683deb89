"""JoinGroup: who may join, with what id, and whether the group rebalances for it.

Static members that return are in `static_members.py`.
"""

from __future__ import annotations

from typing import Final

from echoless.coordinators.groups.answers import JoinAnswer
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.groups import Groups
from echoless.coordinators.groups.log_names import shown
from echoless.coordinators.groups.member import Member, joining_member, protocol_bytes
from echoless.coordinators.groups.membership import Membership, member_error
from echoless.coordinators.groups.rebalances import Rebalances
from echoless.coordinators.groups.requests import JoinGroup
from echoless.coordinators.groups.sessions import Sessions
from echoless.coordinators.groups.static_members import StaticMembers
from echoless.protocol.errors import ErrorCode

_NO_MEMBER: Final = ""
_REASON_CHARACTERS_MAX: Final = 200


class Joins:
    """Answers JoinGroup, at once or at the end of the join phase."""

    def __init__(
        self,
        groups: Groups,
        membership: Membership,
        sessions: Sessions,
        rebalances: Rebalances,
    ) -> None:
        self._groups = groups
        self._membership = membership
        self._sessions = sessions
        self._rebalances = rebalances
        self._static_members = StaticMembers(groups, membership, sessions, rebalances)

    def handle(self, reply_id: int, request: JoinGroup) -> None:
        """Answer the request, or let it wait."""
        code = self._flaw(request)
        if code is not ErrorCode.NONE:
            self._refuse(reply_id, request.member_id, code)
            return
        group = self._groups.find(request.group_id)
        if group is None:
            if request.member_id:
                self._refuse(reply_id, request.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
                return
            group = self._groups.find_or_create(request.group_id)
            if group is None:
                self._refuse(reply_id, _NO_MEMBER, ErrorCode.POLICY_VIOLATION)
                return
        self._join(group, reply_id, request)

    def _flaw(self, request: JoinGroup) -> ErrorCode:
        config = self._groups.config
        longest = config.name_bytes_max
        if not 0 < len(request.group_id) <= longest:
            return ErrorCode.INVALID_GROUP_ID
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
            or max(map(len, names)) > longest
            or protocol_bytes(request.protocols) > config.member_bytes_max
        ):
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _join(self, group: Group, reply_id: int, request: JoinGroup) -> None:
        member = group.members.get(request.member_id)
        if not self._has_room(group, member):
            if member is not None:
                self._rebalances.remove(group, [member], "exceeds the group's size")
            self._refuse(reply_id, _NO_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif group.state is GroupState.DEAD:
            self._refuse(reply_id, request.member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not group.supports(request.protocol_type, request.protocols):
            self._refuse(reply_id, request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif not request.member_id:
            self._join_unknown(group, reply_id, request)
        elif request.member_id in group.pending_members:
            self._join_with_id_handed_out(group, reply_id, request)
        else:
            self._join_again(group, reply_id, request)

    def _has_room(self, group: Group, member: Member | None) -> bool:
        most = self._groups.config.group_max_size
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                is_waiting = member is not None and member.join_reply is not None
                return is_waiting or group.waiting_joins < most
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                return member is not None or len(group.members) < most
            case _:
                return True

    def _join_unknown(self, group: Group, reply_id: int, request: JoinGroup) -> None:
        instance_id = request.group_instance_id
        returning = group.static_members.get(instance_id) if instance_id is not None else None
        if returning is not None:
            self._static_members.replace(group, group.members[returning], reply_id, request)
        elif not self._membership.has_room(group):
            self._refuse(reply_id, _NO_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif instance_id is not None:
            self._add(group, f"{instance_id}-{request.uuid}", reply_id, request)
        elif request.requires_known_member_id:
            member_id = f"{request.client_id}-{request.uuid}"
            self._membership.hand_out(group, member_id, request.session_timeout_ms)
            self._refuse(reply_id, member_id, ErrorCode.MEMBER_ID_REQUIRED)
        else:
            self._add(group, f"{request.client_id}-{request.uuid}", reply_id, request)

    def _join_with_id_handed_out(self, group: Group, reply_id: int, request: JoinGroup) -> None:
        if request.group_instance_id is not None:  # ids are handed out to dynamic members only
            self._refuse(reply_id, request.member_id, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self._membership.take_back(group, request.member_id)
        self._add(group, request.member_id, reply_id, request)

    def _add(self, group: Group, member_id: str, reply_id: int, request: JoinGroup) -> None:
        if not self._membership.has_room_for(group, request.protocols):
            self._refuse(reply_id, _NO_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
            return
        member = joining_member(request, member_id)
        member.join_reply = reply_id
        if not group.members:
            group.protocol_type = request.protocol_type
        if not member.was_given_id and not member.is_static:
            self._groups.unnamed[reply_id] = (group, member)
        self._membership.add(group, member)
        self._sessions.wait(group, member, self._groups.config.new_member_join_timeout_ms)
        group.was_joined_since_delay = True
        self._rebalances.begin(group, f"{shown(member_id)} joins{_quoted(request.reason)}")

    def _join_again(self, group: Group, reply_id: int, request: JoinGroup) -> None:
        code = member_error(group, request.member_id, request.group_instance_id)
        if code is not ErrorCode.NONE:
            self._refuse(reply_id, request.member_id, code)
            return
        member = group.members[request.member_id]
        if not self._membership.has_room_for(group, request.protocols, member.protocols):
            self._refuse(reply_id, request.member_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
            return
        is_unchanged = member.protocols == request.protocols
        match group.state:
            case GroupState.COMPLETING_REBALANCE if is_unchanged:
                if group.generation_token is None:
                    self._groups.reply(reply_id, self._rebalances.current_answer(group, member))
                else:
                    self._wait(group, member, reply_id)
            case GroupState.STABLE if is_unchanged and member.member_id != group.leader:
                self._groups.reply(reply_id, self._rebalances.current_answer(group, member))
            case _:
                self._update(group, member, reply_id, request)

    def _update(self, group: Group, member: Member, reply_id: int, request: JoinGroup) -> None:
        self._membership.set_protocols(group, member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        self._wait(group, member, reply_id)
        self._rebalances.begin(group, f"{shown(member.member_id)} rejoins{_quoted(request.reason)}")

    def _wait(self, group: Group, member: Member, reply_id: int) -> None:
        earlier = group.wait_in_join(member, reply_id)
        self._refuse(earlier, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)

    def _refuse(self, reply_id: int | None, member_id: str, code: ErrorCode) -> None:
        self._groups.reply(reply_id, JoinAnswer(code, member_id))


def _quoted(reason: str) -> str:
    """The reason that a client gives, for a log line."""
    return f" because {reason[:_REASON_CHARACTERS_MAX]!r}" if reason else ""
