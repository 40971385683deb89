"""Heartbeat: answered at once, and the session of the member begins anew."""

from __future__ import annotations

from echoless.coordinators.effects import Reply
from echoless.coordinators.events import Now
from echoless.coordinators.groups.answers import HeartbeatAnswer
from echoless.coordinators.groups.classic import sessions
from echoless.coordinators.groups.classic.membership import generation_error
from echoless.coordinators.groups.effects import Effects
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.requests import Heartbeat
from echoless.coordinators.groups.store import GroupStore
from echoless.protocol.errors import ErrorCode


def handle(store: GroupStore, reply_id: int, request: Heartbeat, now: Now) -> Effects:
    """Answer the request. A member of a group that rebalances is alive, and is to rejoin."""
    group = store.find(request.group_id)
    code = flaw(group, request)
    effects: Effects = []
    if group is not None and code is ErrorCode.NONE:
        effects = sessions.extend(group, group.members[request.member_id], now)
        if group.state is GroupState.PREPARING_REBALANCE:
            code = ErrorCode.REBALANCE_IN_PROGRESS
    effects.append(Reply(reply_id, HeartbeatAnswer(code)))
    return effects


def flaw(group: Group | None, request: Heartbeat) -> ErrorCode:
    """NONE if the member is in this generation of the group."""
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return generation_error(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
