"""The heartbeats of members: what they change is stored before any of them is answered.

A turn takes the heartbeats that have come while the last append was under way: members come and go, the group's
epoch rises at most once, one target is made, then each of them goes on towards it.

Invariant: for each epoch of a group at most one target is made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from echoless.coordinators.groups.consumer.admission import Admission, Admitted, Refused, flaw
from echoless.coordinators.groups.consumer.assignment import Assignment
from echoless.coordinators.groups.consumer.group import ASSIGNING, ConsumerGroup, Resolution
from echoless.coordinators.groups.consumer.reconciliation import Partitions, reconciled
from echoless.coordinators.groups.consumer.requests import (
    JOINS,
    UNCHANGED,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from echoless.coordinators.groups.consumer.sessions import ConsumerSessions
from echoless.coordinators.groups.consumer.state import ConsumerState, member_size
from echoless.coordinators.groups.consumer.storing import Storing
from echoless.coordinators.groups.consumer.topics import KnownTopics, metadata_hash
from echoless.coordinators.groups.effects import MakeTarget, ResolveRegex, TimerKey, TimerKind
from echoless.coordinators.groups.events import RegexResolved, TargetMade
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.groups import Groups
from echoless.coordinators.groups.log_names import shown
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.consumer_group_values import (
    CurrentValue,
    EpochValue,
    RegexValue,
)
from echoless.protocol.state_records.group_keys import CurrentKey, EpochKey, RegexKey

REFRESH_MS: Final = 10_000
"""A regular expression is resolved again no sooner than this, if topics have changed."""
_HEARTBEATS_PER_TURN: Final = 100
_SUBSCRIPTIONS_PER_TURN: Final = 256 * 1024
"""Bytes of subscriptions: what a turn changes is one batch, and one that is too large is refused for ever."""
_LATE_PER_TURN: Final = 100

Waiting = tuple[int, ConsumerHeartbeat]
Outcome = tuple[int, ConsumerHeartbeat, Admitted | Refused | None]


class ConsumerHeartbeats:
    """Answers ConsumerGroupHeartbeat."""

    def __init__(
        self, groups: Groups, topics: KnownTopics, sessions: ConsumerSessions, storing: Storing
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._sessions = sessions
        self._storing = storing
        self.completed = 0
        """Targets that were made."""

    # --- requests

    def handle(self, reply_id: int, request: ConsumerHeartbeat) -> None:
        """Answer the request, or let it wait for what is being stored."""
        refused = flaw(request, self._groups.config)
        group = None
        if refused is None:
            group, refused = self._find(request)
        if group is None or refused is not None:
            refused = refused or Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
            answer = ConsumerHeartbeatAnswer(refused.code, refused.message)
            self._groups.reply(reply_id, answer)
            return
        consumer = self._begin(group)
        if request.topic_regex and not self._is_resolved(consumer, reply_id, request):
            return
        self._turn(group, consumer, [(reply_id, request)])

    def _find(self, request: ConsumerHeartbeat) -> tuple[Group | None, Refused | None]:
        """The group, which may be made or change its type if the member joins."""
        group = self._groups.find(request.group_id)
        joins = request.member_epoch == JOINS
        if group is not None and group.state is GroupState.DEAD:
            return None, Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if group is not None and group.consumer is not None:
            return group, None
        if group is not None and group.state is not GroupState.EMPTY:
            message = (
                f"Group {request.group_id} has members of the classic protocol. Members of the "
                "consumer protocol may join once it is empty: stop the others first."
            )
            return None, Refused(ErrorCode.GROUP_ID_NOT_FOUND, message)
        if not joins:
            return None, Refused(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found."
            )
        group = self._groups.find_or_create(request.group_id)
        if group is None:
            return None, Refused(ErrorCode.POLICY_VIOLATION, "The broker holds too many groups.")
        return group, None

    def _begin(self, group: Group) -> ConsumerGroup:
        """The group's consumer part; an empty classic group gets one, and its epochs follow its generations."""
        if group.consumer is None:
            state = ConsumerState()
            if group.generation_id:
                state.put(EpochKey(group.group_id), EpochValue(group.generation_id))
            group.consumer = ConsumerGroup(group.group_id, state)
        return group.consumer

    # --- regular expressions

    def _is_resolved(
        self, consumer: ConsumerGroup, reply_id: int, request: ConsumerHeartbeat
    ) -> bool:
        """Whether the topics of the request's expression are known; a member that joins waits until they are."""
        pattern = request.topic_regex or ""
        if pattern in consumer.state.regexes or pattern in consumer.resolutions:
            return True
        self._resolve(consumer, pattern, request)
        if request.member_epoch != JOINS:
            return True
        self._storing.park_until_resolved(consumer, pattern, reply_id, request)
        return False

    def _resolve(self, consumer: ConsumerGroup, pattern: str, request: ConsumerHeartbeat) -> None:
        if pattern not in consumer.resolving:
            consumer.resolving[pattern] = {}
            self._groups.emit(ResolveRegex(consumer.group_id, pattern, request.may_describe))

    def _refresh(self, consumer: ConsumerGroup, member_id: str, request: ConsumerHeartbeat) -> None:
        """Have the member's expression resolved again if topics have changed."""
        pattern = consumer.state.members[member_id].topic_regex
        if pattern is None:
            return
        known = consumer.resolutions.get(pattern)
        now_ms = self._groups.now.monotonic_ms
        if known is None or (
            known.version != self._topics.version and now_ms - known.at_ms >= REFRESH_MS
        ):
            self._resolve(consumer, pattern, request)

    def resolved(self, event: RegexResolved) -> None:
        """Take the topics that an expression matches."""
        group = self._groups.live.get(event.group_id)
        consumer = group.consumer if group is not None else None
        if group is None or consumer is None:
            return
        if group.state is GroupState.DEAD:
            self._storing.refuse_waiting(consumer)
            return
        at_ms = self._groups.now.monotonic_ms
        consumer.resolutions[event.pattern] = Resolution(event.topics, event.version, at_ms)
        consumer.must_match = True
        self._storing.unpark_resolved(consumer, event.pattern)
        if consumer.token is None:
            self._turn(group, consumer, self._take_heartbeats(consumer))
            if group.consumer is consumer:
                self.go_on(group, consumer)

    def _take_resolutions(self, consumer: ConsumerGroup) -> None:
        """Store what the members' expressions match, and forget the expressions that no member has."""
        if not consumer.must_match:
            return
        consumer.must_match = False
        group_id, stored = consumer.group_id, consumer.state.regexes
        patterns = {one.topic_regex for one in consumer.state.members.values()} - {None}
        for pattern in sorted(stored.keys() - patterns):
            consumer.put(RegexKey(group_id, pattern), None)
        for pattern, found in list(consumer.resolutions.items()):
            if pattern not in patterns:
                del consumer.resolutions[pattern]
            elif pattern not in stored or stored[pattern].topics != found.topics:
                value = RegexValue(found.topics, found.version, self._groups.now.wall_ms)
                consumer.put(RegexKey(group_id, pattern), value)

    # --- turns

    def _turn(self, group: Group, consumer: ConsumerGroup, waiting: list[Waiting]) -> None:
        """Process heartbeats, store what they change, and answer them then."""
        admission = self._admission(group, consumer)
        before: dict[str, CurrentValue | None] = {}
        outcomes: list[Outcome] = []
        for reply_id, request in waiting:
            member_id = request.member_id or request.uuid
            before.setdefault(member_id, consumer.state.currents.get(member_id))
            if request.member_epoch < JOINS:
                outcomes.append((reply_id, request, admission.leave(request)))
            else:
                outcomes.append((reply_id, request, admission.admit(request)))
        self._begin_epoch(consumer)
        if consumer.state.number > consumer.state.target_epoch and any(
            isinstance(outcome, Admitted) for _, _, outcome in outcomes
        ):
            self._assign(consumer, partial(self._end_turn, group, consumer, outcomes, before))
        else:
            self._end_turn(group, consumer, outcomes, before)

    def _assign(self, consumer: ConsumerGroup, then: Callable[[], None]) -> None:
        """Make the target of the new epoch and end the turn: at once, or when the shell has taken all steps."""
        self.completed += 1
        assignment = Assignment(consumer, self._topics)
        if assignment.is_small:
            for _ in assignment.steps():
                pass
            then()
        else:
            consumer.token, consumer.assigning = ASSIGNING, assignment.steps()
            consumer.then = then
            self._groups.emit(MakeTarget(consumer.group_id, consumer.assigning))

    def assigned(self, event: TargetMade) -> None:
        """End the turn for which a target was made."""
        group = self._groups.live.get(event.group_id)
        consumer = group.consumer if group is not None else None
        if group is None or consumer is None or consumer.assigning is not event.steps:
            return
        then, consumer.then = consumer.then, None
        consumer.token = consumer.assigning = None
        assert then is not None
        then()
        self.go_on(group, consumer)

    def _end_turn(
        self,
        group: Group,
        consumer: ConsumerGroup,
        outcomes: list[Outcome],
        before: dict[str, CurrentValue | None],
    ) -> None:
        answers = [
            (reply_id, request, self._answer(consumer, request, outcome, before))
            for reply_id, request, outcome in outcomes
        ]
        self._storing.finish(group, consumer, answers)

    def _take_heartbeats(self, consumer: ConsumerGroup) -> list[Waiting]:
        """The heartbeats that have waited longest, as far as their subscriptions fit one batch."""
        taken: list[Waiting] = []
        size = 0
        for reply_id, request in list(consumer.queue.items())[:_HEARTBEATS_PER_TURN]:
            if not isinstance(request, ConsumerHeartbeat):
                break
            size += member_size(request.topic_names or (), request.topic_regex)
            if taken and size > _SUBSCRIPTIONS_PER_TURN:
                break
            self._storing.take(consumer, reply_id)
            taken.append((reply_id, request))
        return taken

    def _admission(self, group: Group, consumer: ConsumerGroup) -> Admission:
        return Admission(self._groups, consumer, partial(self._changed, group))

    def _changed(self, group: Group, member_id: str, change: int) -> None:
        self._groups.members += change
        verb = "joins" if change > 0 else "leaves"
        self._groups.note(f"{shown(member_id)} {verb} group {shown(group.group_id)}")
        if change < 0 and group.consumer is not None:
            self._sessions.end(group.consumer, member_id)

    def _begin_epoch(self, consumer: ConsumerGroup) -> None:
        """Begin a new epoch if members, subscriptions or the topics that are subscribed to have changed."""
        self._take_resolutions(consumer)
        state = consumer.state
        is_same = not state.members or consumer.topics_version == self._topics.version
        if is_same and not consumer.must_bump:
            return
        consumer.topics_version = self._topics.version
        hashed = metadata_hash(consumer.subscribed(), self._topics)
        known = 0 if state.epoch is None else state.epoch.metadata_hash
        if consumer.must_bump or hashed != known:
            consumer.must_bump = False
            key = EpochKey(consumer.group_id)
            consumer.put(key, EpochValue(state.number + 1, hashed))
            consumer.topics_version = self._topics.version

    def _answer(
        self,
        consumer: ConsumerGroup,
        request: ConsumerHeartbeat,
        outcome: Admitted | Refused | None,
        before: dict[str, CurrentValue | None],
    ) -> ConsumerHeartbeatAnswer:
        if isinstance(outcome, Refused):
            return ConsumerHeartbeatAnswer(outcome.code, outcome.message)
        if outcome is None:
            left = (request.member_id, request.member_epoch)
            return ConsumerHeartbeatAnswer(ErrorCode.NONE, None, *left)
        interval_ms = self._groups.config.group_consumer_heartbeat_interval_ms
        member_id, state = outcome.member_id, consumer.state
        if member_id not in state.members:  # it has left in the same turn
            message = "The member is not in the group."
            return ConsumerHeartbeatAnswer(ErrorCode.UNKNOWN_MEMBER_ID, message)
        if not outcome.is_retry:
            self._reconcile(consumer, member_id, outcome.owned)
        current = state.currents[member_id]
        self._sessions.extend(consumer, member_id)
        self._refresh(consumer, member_id, request)
        earlier = before[member_id]
        assigned = frozenset(current.assigned)
        is_news = (
            outcome.is_retry
            or _is_full(request)
            or earlier is None
            or earlier.assigned.keys() != assigned
            # It may have missed an answer that was stored, if the lead was lost before it was given.
            or (request.owned is not None and request.owned != assigned)
        )
        return ConsumerHeartbeatAnswer(
            ErrorCode.NONE,
            None,
            member_id,
            current.epoch,
            interval_ms,
            assigned if is_news else None,
        )

    def _reconcile(self, consumer: ConsumerGroup, member_id: str, owned: Partitions | None) -> None:
        state = consumer.state
        current = reconciled(
            state.currents[member_id],
            state.targets.get(member_id, frozenset()),
            state.target_epoch,
            owned,
            partial(consumer.is_free_for, member_id),
        )
        consumer.put(CurrentKey(consumer.group_id, member_id), current)

    # --- what has waited

    def go_on(self, group: Group, consumer: ConsumerGroup) -> None:
        """Process what has waited, until something is being stored again."""
        while consumer.token is None and group.consumer is consumer:
            if due := self._take_due(consumer):
                self._end_due(group, consumer, due)
            elif heartbeats := self._take_heartbeats(consumer):
                self._turn(group, consumer, heartbeats)
            elif consumer.queue:
                reply_id = next(iter(consumer.queue))
                self._storing.dispatch(reply_id, self._storing.take(consumer, reply_id))
            else:
                return

    def _take_due(self, consumer: ConsumerGroup) -> list[TimerKey]:
        """Some timers that fired meanwhile; not of a member whose heartbeat waits, since it may have given up in time."""
        if not consumer.due:
            return []
        queued = consumer.queue.values()
        waiting = {one.member_id for one in queued if isinstance(one, ConsumerHeartbeat)}
        due = [key for key in consumer.due if key.member_id not in waiting][:_LATE_PER_TURN]
        taken = set(due)
        consumer.due = [key for key in consumer.due if key not in taken]
        return due

    # --- timers

    def timer_fired(self, group: Group, consumer: ConsumerGroup, key: TimerKey) -> None:
        """Remove a member whose session, or time to give up partitions, has ended."""
        if consumer.token is not None:
            consumer.due.append(key)
        else:
            self._end_due(group, consumer, [key])

    def _end_due(self, group: Group, consumer: ConsumerGroup, due: list[TimerKey]) -> None:
        late = {key.member_id: key.kind for key in due if self._sessions.has_ended(consumer, key)}
        if not late:
            return
        for member_id, kind in late.items():
            self._note_late(group, member_id, kind)
        self.remove(group, consumer, list(late))
        self._storing.finish(group, consumer, ())

    def _note_late(self, group: Group, member_id: str, kind: TimerKind) -> None:
        session = "has let its session expire"
        what = session if kind is TimerKind.SESSION else "has not given up its partitions in time"
        self._groups.note(f"member {shown(member_id)} of group {shown(group.group_id)} {what}")

    def remove(self, group: Group, consumer: ConsumerGroup, members: list[str]) -> None:
        """Remove members, while nothing is being stored; to be finished."""
        admission = self._admission(group, consumer)
        for member_id in members:
            admission.remove(member_id)
        self._begin_epoch(consumer)


def _is_full(request: ConsumerHeartbeat) -> bool:
    return request.member_epoch == JOINS or (
        request.rebalance_timeout_ms != UNCHANGED
        and (request.topic_names is not None or request.topic_regex is not None)
        and request.owned is not None
    )
