"""The backlog of a consumer group whose change is being stored: timers, heartbeats and other requests.

A turn takes the heartbeats that have come meanwhile, on the path of those that need not wait.
"""

from __future__ import annotations

from typing import Final

from echoless.coordinators.effects import LogLine
from echoless.coordinators.events import Now
from echoless.coordinators.groups.consumer import parking, regexes
from echoless.coordinators.groups.consumer.group import ConsumerGroup
from echoless.coordinators.groups.consumer.heartbeats import ConsumerHeartbeats
from echoless.coordinators.groups.consumer.requests import ConsumerHeartbeat
from echoless.coordinators.groups.consumer.sessions import ConsumerSessions
from echoless.coordinators.groups.consumer.state import member_size
from echoless.coordinators.groups.consumer.storing import Dispatch, Storing
from echoless.coordinators.groups.consumer.turns import HeartbeatTurns, Waiting
from echoless.coordinators.groups.effects import Effects, TimerKey, TimerKind
from echoless.coordinators.groups.events import RegexResolved, TargetMade
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.log_names import shown
from echoless.coordinators.groups.store import GroupStore

_HEARTBEATS_PER_TURN: Final = 100
_SUBSCRIPTIONS_PER_TURN: Final = 256 * 1024
"""Bytes of subscriptions: what a turn changes is one batch, and one that is too large is refused for ever."""
_LATE_PER_TURN: Final = 100


class Backlog:
    """Processes the backlog, and timers."""

    def __init__(
        self,
        sessions: ConsumerSessions,
        storing: Storing,
        turns: HeartbeatTurns,
        heartbeats: ConsumerHeartbeats,
        dispatch: Dispatch,
    ) -> None:
        self._sessions = sessions
        self._storing = storing
        self._turns = turns
        self._heartbeats = heartbeats
        self._dispatch = dispatch

    def go_on(self, store: GroupStore, group: Group, consumer: ConsumerGroup, now: Now) -> Effects:
        """Process what has waited, until something is being stored again."""
        effects: Effects = []
        while consumer.token is None and group.consumer is consumer:
            if due := _take_due(consumer):
                effects += self._end_due(store, group, consumer, due, now)
            elif heartbeats := take_heartbeats(store, consumer):
                effects += self._heartbeats.handle(store, heartbeats, now)
            elif consumer.queue:
                reply_id = next(iter(consumer.queue))
                request = parking.take(store, consumer, reply_id)
                effects += self._dispatch(reply_id, request, now)
            else:
                break
        return effects

    def resolved(self, store: GroupStore, event: RegexResolved, now: Now) -> Effects:
        """Take the topics that an expression matches; a turn stores them, if only for the members there are."""
        group = store.live.get(event.group_id)
        consumer = group.consumer if group is not None else None
        if group is None or consumer is None:
            return []
        if group.state is GroupState.DEAD:
            return parking.refuse_all(store, consumer)
        regexes.remember(consumer, event, now)
        parking.unpark_resolved(consumer, event.pattern)
        effects: Effects = []
        if consumer.token is None and not consumer.queue:
            effects = self._turns.run(store, group, consumer, [], now)
        return effects + self.go_on(store, group, consumer, now)

    def target_made(self, store: GroupStore, event: TargetMade, now: Now) -> Effects:
        """End the turn for which a target was made."""
        group = store.live.get(event.group_id)
        consumer = group.consumer if group is not None else None
        if group is None or consumer is None or consumer.assigning is not event.steps:
            return []
        effects = self._turns.target_made(consumer, now)
        return effects + self.go_on(store, group, consumer, now)

    def timer_fired(
        self, store: GroupStore, group: Group, consumer: ConsumerGroup, key: TimerKey, now: Now
    ) -> Effects:
        """Remove a member whose session, or time to give up partitions, has ended."""
        if consumer.token is not None:
            consumer.due.append(key)
            return []
        return self._end_due(store, group, consumer, [key], now)

    def _end_due(
        self,
        store: GroupStore,
        group: Group,
        consumer: ConsumerGroup,
        due: list[TimerKey],
        now: Now,
    ) -> Effects:
        effects: Effects = []
        late: dict[str, TimerKind] = {}
        for key in due:
            again = self._sessions.timer_fired(consumer, key, now)
            if again is None:
                late[key.member_id] = key.kind
            else:
                effects += again
        if not late:
            return effects
        effects += [_late_line(group, member_id, kind) for member_id, kind in late.items()]
        effects += self._turns.remove(store, consumer, list(late), now)
        return effects + self._storing.finish(store, group, consumer, ())


def take_heartbeats(store: GroupStore, consumer: ConsumerGroup) -> list[Waiting]:
    """Take the heartbeats that have waited longest, as far as their subscriptions fit one batch."""
    taken: list[Waiting] = []
    size = 0
    for reply_id, request in list(consumer.queue.items())[:_HEARTBEATS_PER_TURN]:
        if not isinstance(request, ConsumerHeartbeat):
            break
        size += member_size(request.topic_names or (), request.topic_regex)
        if taken and size > _SUBSCRIPTIONS_PER_TURN:
            break
        parking.take(store, consumer, reply_id)
        taken.append((reply_id, request))
    return taken


def _take_due(consumer: ConsumerGroup) -> list[TimerKey]:
    """Take some timers that fired; not of a member whose heartbeat waits, since it may have given up in time."""
    if not consumer.due:
        return []
    queued = consumer.queue.values()
    waiting = {one.member_id for one in queued if isinstance(one, ConsumerHeartbeat)}
    due = [key for key in consumer.due if key.member_id not in waiting][:_LATE_PER_TURN]
    taken = set(due)
    consumer.due = [key for key in consumer.due if key not in taken]
    return due


def _late_line(group: Group, member_id: str, kind: TimerKind) -> LogLine:
    session = "has let its session expire"
    what = session if kind is TimerKind.SESSION else "has not given up its partitions in time"
    return LogLine(f"member {shown(member_id)} of group {shown(group.group_id)} {what}")
