"""ConsumerGroupHeartbeat: to which group it belongs, and whether it can be processed at once."""

from __future__ import annotations

from echoless.coordinators.effects import Reply
from echoless.coordinators.events import Now
from echoless.coordinators.groups.bounds import GroupBounds
from echoless.coordinators.groups.consumer import parking, regexes
from echoless.coordinators.groups.consumer.backlog import Backlog, take_heartbeats
from echoless.coordinators.groups.consumer.group import ConsumerGroup
from echoless.coordinators.groups.consumer.request_checks import Refused, flaw
from echoless.coordinators.groups.consumer.requests import (
    JOINS,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from echoless.coordinators.groups.consumer.state import ConsumerState
from echoless.coordinators.groups.consumer.turns import HeartbeatTurns
from echoless.coordinators.groups.effects import Effects
from echoless.coordinators.groups.events import RegexResolved, TargetMade
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.store import GroupStore
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.consumer_group_values import EpochValue
from echoless.protocol.state_records.group_keys import EpochKey


class ConsumerHeartbeats:
    """Answers ConsumerGroupHeartbeat."""

    def __init__(self, bounds: GroupBounds, turns: HeartbeatTurns, backlog: Backlog) -> None:
        self._bounds = bounds
        self._turns = turns
        self._backlog = backlog

    def handle(
        self, store: GroupStore, reply_id: int, request: ConsumerHeartbeat, now: Now
    ) -> Effects:
        """Answer the request, or let it wait for what is being stored."""
        group: Group | Refused = flaw(request, self._bounds.config) or self._find(store, request)
        if isinstance(group, Refused):
            return [Reply(reply_id, ConsumerHeartbeatAnswer(group.code, group.message))]
        consumer = _begin(group)
        pattern = request.topic_regex
        effects: Effects = []
        if pattern and not regexes.is_known(consumer, pattern):
            effects = regexes.resolve(consumer, pattern, request)
            if request.member_epoch == JOINS:
                parking.park_until_resolved(store, consumer, pattern, reply_id, request)
                return effects
        return effects + self._turns.run(store, group, consumer, [(reply_id, request)], now)

    def _find(self, store: GroupStore, request: ConsumerHeartbeat) -> Group | Refused:
        """The group, which may be made or change its type if the member joins."""
        group = store.find(request.group_id)
        if group is not None and group.state is GroupState.DEAD:
            return Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if group is not None and group.consumer is not None:
            return group
        if group is not None and group.state is not GroupState.EMPTY:
            message = (
                f"Group {request.group_id} has members of the classic protocol. Members of the "
                "consumer protocol may join once it is empty: stop the others first."
            )
            return Refused(ErrorCode.GROUP_ID_NOT_FOUND, message)
        if request.member_epoch != JOINS:
            return Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        if group is not None:
            return group
        if not self._bounds.has_room_for_group():
            return Refused(ErrorCode.POLICY_VIOLATION, "The broker holds too many groups.")
        return store.create(request.group_id)

    def resolved(self, store: GroupStore, event: RegexResolved, now: Now) -> Effects:
        """Take the topics that an expression matches."""
        group = store.live.get(event.group_id)
        consumer = group.consumer if group is not None else None
        if group is None or consumer is None:
            return []
        if group.state is GroupState.DEAD:
            return parking.refuse_all(store, consumer)
        regexes.remember(consumer, event, now)
        parking.unpark_resolved(consumer, event.pattern)
        if consumer.token is not None:
            return []
        heartbeats = take_heartbeats(store, consumer)
        effects = self._turns.run(store, group, consumer, heartbeats, now)
        return effects + self._backlog.go_on(store, group, consumer, now)

    def target_made(self, store: GroupStore, event: TargetMade, now: Now) -> Effects:
        """End the turn for which a target was made."""
        group = store.live.get(event.group_id)
        consumer = group.consumer if group is not None else None
        if group is None or consumer is None or consumer.assigning is not event.steps:
            return []
        effects = self._turns.target_made(consumer, now)
        return effects + self._backlog.go_on(store, group, consumer, now)


def _begin(group: Group) -> ConsumerGroup:
    """The group's consumer part; an empty classic group gets one, and its epochs follow its generations."""
    if group.consumer is None:
        state = ConsumerState()
        if group.generation_id:
            state.put(EpochKey(group.group_id), EpochValue(group.generation_id))
        group.consumer = ConsumerGroup(group.group_id, state)
    return group.consumer
