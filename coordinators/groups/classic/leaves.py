"""LeaveGroup: members that leave by themselves, or are removed by an administrator by their instance ids."""

from __future__ import annotations

from echoless.coordinators.effects import Reply
from echoless.coordinators.events import Now
from echoless.coordinators.groups.answers import LeaveAnswer, LeftMember
from echoless.coordinators.groups.classic import membership
from echoless.coordinators.groups.classic.member import Member
from echoless.coordinators.groups.classic.membership import member_error
from echoless.coordinators.groups.classic.rebalances import Rebalances
from echoless.coordinators.groups.effects import Effects
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.requests import LeaveGroup, LeavingMember
from echoless.coordinators.groups.store import GroupStore
from echoless.protocol.errors import ErrorCode


class Leaves:
    """Answers LeaveGroup, at once."""

    def __init__(self, rebalances: Rebalances) -> None:
        self._rebalances = rebalances

    def handle(self, store: GroupStore, reply_id: int, request: LeaveGroup, now: Now) -> Effects:
        """Remove the members, each of which has its own code; then rebalance once."""
        group = store.find(request.group_id)
        if group is not None and group.state is GroupState.DEAD:
            return [Reply(reply_id, LeaveAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))]
        leaving: dict[str, Member] = {}
        effects: Effects = []
        rows = []
        for one in request.members:
            if group is not None and one.member_id in group.pending_members:
                code = ErrorCode.NONE
                effects += membership.take_back(store, group, one.member_id)
            else:
                code = _code(group, one, leaving)
            rows.append(LeftMember(one.member_id, one.group_instance_id, code))
        effects.append(Reply(reply_id, LeaveAnswer(ErrorCode.NONE, tuple(rows))))
        if group is not None:
            members = list(leaving.values())
            effects += self._rebalances.remove(store, group, members, "leaves", now)
            effects += self._rebalances.try_complete(store, group, now)
        return effects


def _code(group: Group | None, one: LeavingMember, leaving: dict[str, Member]) -> ErrorCode:
    """The code of a member; one that may go is added to those that leave."""
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    member_id = one.member_id
    if not member_id and one.group_instance_id is not None:
        member_id = group.static_members.get(one.group_instance_id, "")
    code = member_error(group, member_id, one.group_instance_id)
    if member_id in leaving:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if code is ErrorCode.NONE:
        leaving[member_id] = group.members[member_id]
    return code
