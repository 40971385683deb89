"""Heartbeat."""

from __future__ import annotations

from echoless.coordinators.groups.answers import HeartbeatAnswer
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.groups import Groups
from echoless.coordinators.groups.membership import generation_error
from echoless.coordinators.groups.requests import Heartbeat
from echoless.coordinators.groups.sessions import Sessions
from echoless.protocol.errors import ErrorCode


class Heartbeats:
    """Answers Heartbeat, and extends the session."""

    def __init__(self, groups: Groups, sessions: Sessions) -> None:
        self._groups = groups
        self._sessions = sessions

    def handle(self, reply_id: int, request: Heartbeat) -> None:
        """Answer the request. A member of a group that rebalances is alive, and is to rejoin."""
        group = self._groups.find(request.group_id)
        code = _flaw(group, request)
        if group is not None and code is ErrorCode.NONE:
            self._sessions.extend(group, group.members[request.member_id])
            if group.state is GroupState.PREPARING_REBALANCE:
                code = ErrorCode.REBALANCE_IN_PROGRESS
        self._groups.reply(reply_id, HeartbeatAnswer(code))


def _flaw(group: Group | None, request: Heartbeat) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return generation_error(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
