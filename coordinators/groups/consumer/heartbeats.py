"""ConsumerGroupHeartbeat: to which group it belongs, and whether its turn can be taken.

One path for those that have just come and for those that have waited for an append: the group may have changed meanwhile.
"""

from __future__ import annotations

from echoless.coordinators.effects import Reply
from echoless.coordinators.events import Now
from echoless.coordinators.groups.bounds import GroupBounds
from echoless.coordinators.groups.consumer import parking, regexes
from echoless.coordinators.groups.consumer.group import ConsumerGroup
from echoless.coordinators.groups.consumer.request_checks import Refused
from echoless.coordinators.groups.consumer.requests import JOINS, ConsumerHeartbeat
from echoless.coordinators.groups.consumer.state import ConsumerState
from echoless.coordinators.groups.consumer.turns import HeartbeatTurns, Waiting
from echoless.coordinators.groups.effects import Effects
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.store import GroupStore
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.consumer_group_values import EpochValue
from echoless.protocol.state_records.group_keys import EpochKey


class ConsumerHeartbeats:
    """Answers ConsumerGroupHeartbeat."""

    def __init__(self, bounds: GroupBounds, turns: HeartbeatTurns) -> None:
        self._bounds = bounds
        self._turns = turns

    def handle(self, store: GroupStore, heartbeats: list[Waiting], now: Now) -> Effects:
        """Take a turn with heartbeats of one group, which have no `flaw`, while nothing of it is being stored.

        One that joins with a new regular expression waits until its topics are known.
        """
        effects: Effects = []
        turn: list[Waiting] = []
        for reply_id, request in heartbeats:
            group = self._find(store, request)
            if isinstance(group, Refused):
                effects.append(Reply(reply_id, group.answer))
                continue
            consumer = _begin(group)
            pattern = request.topic_regex if request.member_epoch == JOINS else None
            if pattern and not regexes.is_known(consumer, pattern):
                effects += regexes.resolve(consumer, pattern, request)
                parking.park_until_resolved(store, consumer, pattern, reply_id, request)
            else:
                turn.append((reply_id, request))
        if turn:
            group = store.live[turn[0][1].group_id]
            effects += self._turns.run(store, group, _begin(group), turn, now)
        return effects

    def _find(self, store: GroupStore, request: ConsumerHeartbeat) -> Group | Refused:
        """The group, which may be made or change its type if the member joins."""
        group = store.find(request.group_id)
        if group is not None and group.state is GroupState.DEAD:
            return Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if group is not None and group.consumer is not None:
            store.shares.adopt(request.group_id, request.sharer)
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
        if not self._bounds.has_room_for_group(request.sharer):
            return Refused(ErrorCode.POLICY_VIOLATION, "The broker holds too many groups.")
        return store.create(request.group_id, request.sharer)


def _begin(group: Group) -> ConsumerGroup:
    """The group's consumer part; an empty classic group gets one, and its epochs follow its generations."""
    if group.consumer is None:
        state = ConsumerState()
        if group.generation_id:
            state.put(EpochKey(group.group_id), EpochValue(group.generation_id))
        group.consumer = ConsumerGroup(group.group_id, state)
    return group.consumer
