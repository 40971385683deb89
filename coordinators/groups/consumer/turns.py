"""Turns of a consumer group: some heartbeats are taken, what they change is stored before any of them is answered.

In a turn members join and leave, the group's epoch rises at most once, one target is made, then each of the members goes on
towards it.

Invariant: for each epoch of a group at most one target is made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from echoless.coordinators.events import Now
from echoless.coordinators.groups.bounds import GroupBounds
from echoless.coordinators.groups.consumer import epochs, regexes
from echoless.coordinators.groups.consumer.admission import Admission, Admitted
from echoless.coordinators.groups.consumer.assignment import TargetAssignment
from echoless.coordinators.groups.consumer.group import ASSIGNING, ConsumerGroup
from echoless.coordinators.groups.consumer.reconciliation import Partitions, reconciled
from echoless.coordinators.groups.consumer.request_checks import Refused
from echoless.coordinators.groups.consumer.requests import (
    JOINS,
    UNCHANGED,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from echoless.coordinators.groups.consumer.sessions import ConsumerSessions
from echoless.coordinators.groups.consumer.storing import Storing
from echoless.coordinators.groups.consumer.topics import KnownTopics
from echoless.coordinators.groups.effects import Effects, MakeTarget
from echoless.coordinators.groups.group import Group
from echoless.coordinators.groups.store import GroupStore
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.consumer_group_values import CurrentValue
from echoless.protocol.state_records.group_keys import CurrentKey

Waiting = tuple[int, ConsumerHeartbeat]
Before = dict[str, CurrentValue | None]
"""The partitions of each member before the turn; None for a new one."""
Decided = tuple[int, ConsumerHeartbeat, Admitted | Refused | None]
"""A heartbeat and what was made of it; None if the member has left with it."""


class _Turn(NamedTuple):
    """A turn that ends when there is a target for its epoch."""

    group: Group
    consumer: ConsumerGroup
    decided: list[Decided]
    before: Before


class HeartbeatTurns:
    """Takes the turns of consumer groups."""

    def __init__(
        self,
        bounds: GroupBounds,
        topics: KnownTopics,
        sessions: ConsumerSessions,
        storing: Storing,
    ) -> None:
        self._bounds = bounds
        self._topics = topics
        self._sessions = sessions
        self._storing = storing

    def run(
        self,
        store: GroupStore,
        group: Group,
        consumer: ConsumerGroup,
        waiting: list[Waiting],
        now: Now,
    ) -> Effects:
        """Process heartbeats, store what they change, and answer them then."""
        admission = Admission(store, self._bounds, consumer)
        before: Before = {}
        decided: list[Decided] = []
        for reply_id, request in waiting:
            member_id = request.member_id or request.uuid
            before.setdefault(member_id, consumer.state.currents.get(member_id))
            if request.member_epoch < JOINS:
                decided.append((reply_id, request, admission.leave(request)))
            else:
                decided.append((reply_id, request, admission.admit(request)))
        epochs.begin_epoch(consumer, self._topics, now)
        end = partial(self._end, store, _Turn(group, consumer, decided, before))
        if consumer.state.number > consumer.state.target_epoch and any(
            isinstance(outcome, Admitted) for _, _, outcome in decided
        ):
            return admission.effects + self._make_target(store, consumer, end, now)
        return admission.effects + end(now)

    def remove(
        self,
        store: GroupStore,
        consumer: ConsumerGroup,
        members: list[str],
        now: Now,
    ) -> Effects:
        """Remove members, while nothing is being stored; to be finished."""
        admission = Admission(store, self._bounds, consumer)
        for member_id in members:
            admission.remove(member_id)
        epochs.begin_epoch(consumer, self._topics, now)
        return admission.effects

    # --- targets

    def _make_target(
        self,
        store: GroupStore,
        consumer: ConsumerGroup,
        then: Callable[[Now], Effects],
        now: Now,
    ) -> Effects:
        """Make the target of the new epoch and end the turn: at once, or when the shell has taken all steps."""
        store.rebalances_completed += 1
        assignment = TargetAssignment(consumer, self._topics)
        if assignment.is_small:
            for _ in assignment.steps():
                pass
            return then(now)
        consumer.token, consumer.assigning = ASSIGNING, assignment.steps()
        consumer.then = then
        return [MakeTarget(consumer.group_id, consumer.assigning)]

    def target_made(self, consumer: ConsumerGroup, now: Now) -> Effects:
        """End the turn for which a target was made."""
        then, consumer.then = consumer.then, None
        consumer.token = consumer.assigning = None
        assert then is not None
        return then(now)

    # --- answers

    def _end(self, store: GroupStore, turn: _Turn, now: Now) -> Effects:
        group, consumer, decided, before = turn
        effects: Effects = []
        answers = []
        for reply_id, request, outcome in decided:
            if isinstance(outcome, Admitted):
                answer, following = self._go_on(consumer, request, outcome, before, now)
                effects += following
            else:
                answer = _answer_without_assignment(request, outcome)
            answers.append((reply_id, request, answer))
        return effects + self._storing.finish(store, group, consumer, answers)

    def _go_on(
        self,
        consumer: ConsumerGroup,
        request: ConsumerHeartbeat,
        admitted: Admitted,
        before: Before,
        now: Now,
    ) -> tuple[ConsumerHeartbeatAnswer, Effects]:
        """Take the member a step towards its target."""
        member_id, state = admitted.member_id, consumer.state
        if member_id not in state.members:  # it has left in the same turn
            message = "The member is not in the group."
            return ConsumerHeartbeatAnswer(ErrorCode.UNKNOWN_MEMBER_ID, message), []
        if not admitted.is_retry:
            _reconcile(consumer, member_id, admitted.owned)
        current = state.currents[member_id]
        effects = self._sessions.extend(consumer, member_id, now)
        effects += regexes.refresh(consumer, member_id, request, self._topics, now)
        is_news = admitted.is_retry or _is_news(request, before[member_id], current)
        answer = ConsumerHeartbeatAnswer(
            ErrorCode.NONE,
            None,
            member_id,
            current.epoch,
            self._bounds.config.group_consumer_heartbeat_interval_ms,
            frozenset(current.assigned) if is_news else None,
        )
        return answer, effects


def _answer_without_assignment(
    request: ConsumerHeartbeat, outcome: Refused | None
) -> ConsumerHeartbeatAnswer:
    if outcome is None:
        left = (request.member_id, request.member_epoch)
        return ConsumerHeartbeatAnswer(ErrorCode.NONE, None, *left)
    return outcome.answer


def _reconcile(consumer: ConsumerGroup, member_id: str, owned: Partitions | None) -> None:
    state = consumer.state
    current = reconciled(
        state.currents[member_id],
        state.targets.get(member_id, frozenset()),
        state.target_epoch,
        owned,
        partial(consumer.is_free_for, member_id),
    )
    consumer.put(CurrentKey(consumer.group_id, member_id), current)


def _is_news(
    request: ConsumerHeartbeat, earlier: CurrentValue | None, current: CurrentValue
) -> bool:
    """Whether the answer has to name the partitions that the member has."""
    return (
        _is_full(request)
        or earlier is None
        or earlier.assigned.keys() != current.assigned.keys()
        # It may have missed an answer that was stored, if the lead was lost before it was given.
        or (request.owned is not None and request.owned != current.assigned.keys())
    )


def _is_full(request: ConsumerHeartbeat) -> bool:
    return request.member_epoch == JOINS or (
        request.rebalance_timeout_ms != UNCHANGED
        and (request.topic_names is not None or request.topic_regex is not None)
        and request.owned is not None
    )
