"""The groups of the consumer protocol of one coordinator: their requests, timers, and what follows an append."""

from __future__ import annotations

from typing import Final

from echoless.coordinators.effects import LogLine, Reply
from echoless.coordinators.events import Now
from echoless.coordinators.groups.answers import GroupAnswer, JoinAnswer, LeaveAnswer, LeftMember
from echoless.coordinators.groups.bounds import GroupBounds
from echoless.coordinators.groups.consumer import parking
from echoless.coordinators.groups.consumer.assignment import unknown_vote
from echoless.coordinators.groups.consumer.backlog import Backlog
from echoless.coordinators.groups.consumer.descriptions import described_consumers
from echoless.coordinators.groups.consumer.group import ConsumerGroup
from echoless.coordinators.groups.consumer.heartbeats import ConsumerHeartbeats
from echoless.coordinators.groups.consumer.request_checks import flaw
from echoless.coordinators.groups.consumer.requests import ConsumerDescribe, ConsumerHeartbeat
from echoless.coordinators.groups.consumer.sessions import ConsumerSessions
from echoless.coordinators.groups.consumer.storing import Dispatch, Storing
from echoless.coordinators.groups.consumer.topics import KnownTopics
from echoless.coordinators.groups.consumer.turns import HeartbeatTurns
from echoless.coordinators.groups.effects import Effects, TimerKey
from echoless.coordinators.groups.events import RegexResolved, TargetMade
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.log_names import shown
from echoless.coordinators.groups.requests import (
    DeleteGroup,
    GroupRequest,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetDelete,
)
from echoless.coordinators.groups.store import GroupStore
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

    def __init__(self, bounds: GroupBounds, topics: KnownTopics, dispatch: Dispatch) -> None:
        """`dispatch` takes a request that has waited."""
        self._config = bounds.config
        sessions = ConsumerSessions(bounds.config)
        self._storing = storing = Storing(sessions, dispatch)
        self._turns = turns = HeartbeatTurns(bounds, topics, sessions, storing)
        self._heartbeats = heartbeats = ConsumerHeartbeats(bounds, turns)
        self._backlog = Backlog(sessions, storing, turns, heartbeats, dispatch)

    def start(self, store: GroupStore, group_id: str, now: Now) -> Effects:
        """Serve a group that was loaded. Raises `DecodeError` if its records contradict each other."""
        group, durable = store.find(group_id), store.durable.groups[group_id]
        if group is None or durable.consumer is None:
            return []
        contradiction = durable.consumer.contradiction()
        if contradiction is not None:
            raise DecodeError(f"the records of group {group_id} do not agree: {contradiction}")
        effects = self._storing.load(store, group, durable.consumer, now)
        unknown = unknown_vote(durable.consumer.members)
        return effects if unknown is None else [*effects, _no_vote(group_id, *unknown)]

    def handle(
        self, store: GroupStore, reply_id: int, request: GroupRequest, now: Now
    ) -> Effects | None:
        """Process the request; return None if it is to be processed as if there were one protocol."""
        if not isinstance(request, _CONCERNED):
            return None
        flawed = flaw(request, self._config) if isinstance(request, ConsumerHeartbeat) else None
        if flawed is not None:
            return [Reply(reply_id, flawed.answer)]
        waiting = self._storing.must_wait(store, reply_id, request, now)
        if waiting is not None:
            return waiting
        match request:
            case ConsumerHeartbeat():
                return self._heartbeats.handle(store, [(reply_id, request)], now)
            case ConsumerDescribe():
                found = described_consumers(store.find(request.group_id), request)
                return [Reply(reply_id, found)]
            case JoinGroup() | LeaveGroup():
                return self._handle_classic(store, reply_id, request, now)
            case _:
                return None

    def _handle_classic(
        self, store: GroupStore, reply_id: int, request: JoinGroup | LeaveGroup, now: Now
    ) -> Effects | None:
        group = store.find(request.group_id)
        consumer = group.consumer if group is not None else None
        if group is None or consumer is None or group.state is not GroupState.EMPTY:
            return None
        if isinstance(request, LeaveGroup):
            return self._leave(store, group, consumer, reply_id, request, now=now)
        if consumer.has_members:
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            return [Reply(reply_id, JoinAnswer(code, request.member_id))]
        if request.member_id:
            return [Reply(reply_id, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))]
        parking.park(store, consumer, reply_id, request)
        return self._storing.become_classic(store, group, consumer, now)

    def _leave(
        self,
        store: GroupStore,
        group: Group,
        consumer: ConsumerGroup,
        reply_id: int,
        request: LeaveGroup,
        *,
        now: Now,
    ) -> Effects:
        """Remove members on behalf of an administrator."""
        leaving: list[str] = []
        rows = []
        for one in request.members:
            code, member_id = _leaving(consumer, one)
            if code is ErrorCode.NONE and member_id not in leaving:
                leaving.append(member_id)
            rows.append(LeftMember(one.member_id, one.group_instance_id, code))
        effects = self._turns.remove(store, consumer, leaving, now)
        answer: GroupAnswer = LeaveAnswer(ErrorCode.NONE, tuple(rows))
        answers = [(reply_id, request, answer)]
        return effects + self._storing.finish(store, group, consumer, answers)

    def committed(self, store: GroupStore, group: Group, token: int, now: Now) -> Effects:
        """Go on with what has waited for an append."""
        consumer = group.consumer
        if consumer is None or consumer.token != token:
            return []
        effects = self._storing.committed(store, group, consumer, now)
        if group.consumer is consumer:
            effects += self._backlog.go_on(store, group, consumer, now)
            store.settle(group)
        return effects

    def timer_fired(
        self, store: GroupStore, group: Group, consumer: ConsumerGroup, key: TimerKey, now: Now
    ) -> Effects:
        """Remove a member that is late."""
        return self._backlog.timer_fired(store, group, consumer, key, now)

    def resolved(self, store: GroupStore, event: RegexResolved, now: Now) -> Effects:
        """Take the topics that a regular expression matches."""
        return self._backlog.resolved(store, event, now)

    def target_made(self, store: GroupStore, event: TargetMade, now: Now) -> Effects:
        """Take a target that was made in steps."""
        return self._backlog.target_made(store, event, now)


def _no_vote(group_id: str, member_id: str, assignor: str) -> LogLine:
    member = f"member {shown(member_id)} of group {shown(group_id)}"
    return LogLine(f"{member} asks for assignor {shown(assignor)}, which is not known: no vote")


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
