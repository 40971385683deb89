"""LeaveGroup: members that leave by themselves, or are removed by an administrator by their instance ids."""

from __future__ import annotations

from echoless.coordinators.groups.answers import LeaveAnswer, LeftMember
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.groups import Groups
from echoless.coordinators.groups.member import Member
from echoless.coordinators.groups.membership import Membership, member_error
from echoless.coordinators.groups.rebalances import Rebalances
from echoless.coordinators.groups.requests import LeaveGroup, LeavingMember
from echoless.protocol.errors import ErrorCode


class Leaves:
    """Answers LeaveGroup, at once."""

    def __init__(self, groups: Groups, membership: Membership, rebalances: Rebalances) -> None:
        self._groups = groups
        self._membership = membership
        self._rebalances = rebalances

    def handle(self, reply_id: int, request: LeaveGroup) -> None:
        """Remove the members, each of which has its own code; then rebalance once."""
        group = self._groups.find(request.group_id)
        if not request.group_id:
            self._groups.reply(reply_id, LeaveAnswer(ErrorCode.INVALID_GROUP_ID))
            return
        if group is not None and group.state is GroupState.DEAD:
            self._groups.reply(reply_id, LeaveAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        leaving: dict[str, Member] = {}
        rows = [
            LeftMember(one.member_id, one.group_instance_id, self._leave(group, one, leaving))
            for one in request.members
        ]
        self._groups.reply(reply_id, LeaveAnswer(ErrorCode.NONE, tuple(rows)))
        if group is not None:
            self._rebalances.remove(group, list(leaving.values()), "leaves")
            self._rebalances.try_complete(group)

    def _leave(
        self, group: Group | None, one: LeavingMember, leaving: dict[str, Member]
    ) -> ErrorCode:
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if one.member_id in group.pending_members:
            self._membership.take_back(group, one.member_id)
            return ErrorCode.NONE
        member_id = one.member_id
        if not member_id and one.group_instance_id is not None:
            member_id = group.static_members.get(one.group_instance_id, "")
        code = member_error(group, member_id, one.group_instance_id)
        if member_id in leaving:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if code is ErrorCode.NONE:
            leaving[member_id] = group.members[member_id]
        return code
