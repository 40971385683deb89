"""The groups of the consumer protocol of one coordinator: their requests, timers, and what follows an append."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from echoless.coordinators.groups.answers import GroupAnswer, JoinAnswer, LeaveAnswer, LeftMember
from echoless.coordinators.groups.consumer.descriptions import described_consumers
from echoless.coordinators.groups.consumer.group import ConsumerGroup
from echoless.coordinators.groups.consumer.heartbeats import ConsumerHeartbeats
from echoless.coordinators.groups.consumer.requests import ConsumerDescribe, ConsumerHeartbeat
from echoless.coordinators.groups.consumer.sessions import ConsumerSessions
from echoless.coordinators.groups.consumer.storing import Storing
from echoless.coordinators.groups.consumer.topics import KnownTopics
from echoless.coordinators.groups.effects import TimerKey
from echoless.coordinators.groups.events import RegexResolved, TargetMade
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.groups import Groups
from echoless.coordinators.groups.membership import Membership
from echoless.coordinators.groups.requests import (
    DeleteGroup,
    GroupRequest,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetDelete,
)
from echoless.protocol.errors import DecodeError, ErrorCode

_CONCERNED: Final = (
    ConsumerHeartbeat,
    ConsumerDescribe,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    DeleteGroup,
)


class ConsumerGroups:
    """The part of a coordinator that serves the consumer protocol."""

    def __init__(
        self,
        groups: Groups,
        membership: Membership,
        topics: KnownTopics,
        dispatch: Callable[[int, GroupRequest], None],
    ) -> None:
        self._groups = groups
        self.sessions = ConsumerSessions(groups)
        self._storing = Storing(groups, membership, self.sessions, dispatch)
        self._heartbeats = ConsumerHeartbeats(groups, topics, self.sessions, self._storing)

    @property
    def targets_made(self) -> int:
        return self._heartbeats.completed

    def start(self, group_id: str) -> None:
        """Serve a group that was loaded. Raises `DecodeError` if its records contradict each other."""
        group, durable = self._groups.find(group_id), self._groups.durable.groups[group_id]
        if group is not None and durable.consumer is not None:
            contradiction = durable.consumer.contradiction()
            if contradiction is not None:
                raise DecodeError(f"the records of group {group_id} do not agree: {contradiction}")
            self._storing.load(group, durable.consumer)

    def takes(self, reply_id: int, request: GroupRequest) -> bool:
        """Whether the request is processed here; else it is processed as if there were one protocol."""
        if not isinstance(request, _CONCERNED):
            return False
        if self._storing.must_wait(reply_id, request):
            return True
        match request:
            case ConsumerHeartbeat():
                self._heartbeats.handle(reply_id, request)
            case ConsumerDescribe():
                found = described_consumers(self._groups.find(request.group_id), request)
                self._groups.reply(reply_id, found)
            case JoinGroup() | LeaveGroup():
                return self._take_classic(reply_id, request)
            case _:
                return False
        return True

    def _take_classic(self, reply_id: int, request: JoinGroup | LeaveGroup) -> bool:
        group = self._groups.find(request.group_id)
        consumer = group.consumer if group is not None else None
        if group is None or consumer is None or group.state is not GroupState.EMPTY:
            return False
        if isinstance(request, LeaveGroup):
            self._leave(group, consumer, reply_id, request)
        elif consumer.has_members:
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            self._groups.reply(reply_id, JoinAnswer(code, request.member_id))
        elif request.member_id:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            self._groups.reply(reply_id, JoinAnswer(code, request.member_id))
        else:
            self._storing.park(consumer, reply_id, request)
            self._storing.become_classic(group, consumer)
        return True

    def _leave(
        self, group: Group, consumer: ConsumerGroup, reply_id: int, request: LeaveGroup
    ) -> None:
        """Remove members on behalf of an administrator."""
        leaving: list[str] = []
        rows = []
        for one in request.members:
            code, member_id = _leaving(consumer, one)
            if code is ErrorCode.NONE and member_id not in leaving:
                leaving.append(member_id)
            rows.append(LeftMember(one.member_id, one.group_instance_id, code))
        self._heartbeats.remove(group, consumer, leaving)
        answer: GroupAnswer = LeaveAnswer(ErrorCode.NONE, tuple(rows))
        self._storing.finish(group, consumer, [(reply_id, request, answer)])

    def committed(self, group: Group, token: int) -> None:
        """Go on with what has waited for an append."""
        consumer = self._storing.committed(group, token)
        if consumer is not None and group.consumer is consumer:
            self._heartbeats.go_on(group, consumer)
            self._groups.settle(group)

    def timer_fired(self, group: Group, consumer: ConsumerGroup, key: TimerKey) -> None:
        """Remove a member that is late."""
        self._heartbeats.timer_fired(group, consumer, key)

    def resolved(self, event: RegexResolved) -> None:
        """Take the topics that a regular expression matches."""
        self._heartbeats.resolved(event)

    def assigned(self, event: TargetMade) -> None:
        """Take a target that was made in steps."""
        self._heartbeats.assigned(event)

    def abandon(self, reply_id: int) -> None:
        """Drop a request that waits."""
        self._storing.abandon(reply_id)


def _leaving(consumer: ConsumerGroup, one: LeavingMember) -> tuple[ErrorCode, str]:
    member_id = one.member_id
    if one.group_instance_id is not None:
        holder = consumer.state.instances.get(one.group_instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, member_id
        if member_id and holder != member_id:
            return ErrorCode.FENCED_INSTANCE_ID, member_id
        return ErrorCode.NONE, holder
    is_known = member_id in consumer.state.members
    return (ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_MEMBER_ID), member_id
