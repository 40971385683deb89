"""Guards of the consumer protocol, each of which can be taken away: histories and vectors must miss it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from echoless.coordinators.effects import Reply
from echoless.coordinators.groups import offset_commits
from echoless.coordinators.groups.consumer import (
    epochs,
    groups,
    heartbeats,
    reconciliation,
    regexes,
    turns,
)
from echoless.coordinators.groups.consumer.admission import Admission, Admitted
from echoless.coordinators.groups.consumer.backlog import Backlog
from echoless.coordinators.groups.consumer.group import ConsumerGroup
from echoless.coordinators.groups.consumer.sessions import ConsumerSessions
from echoless.coordinators.groups.consumer.state import ConsumerState
from echoless.coordinators.groups.consumer.storing import Storing
from echoless.coordinators.groups.effects import Effects
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.consumer_group_values import EpochValue
from echoless.protocol.state_records.group_keys import EpochKey

Patches = list[Any]


def _partitions_are_given_while_another_has_them() -> Patches:
    return [patch.object(ConsumerGroup, "is_free_for", lambda *_: True)]


def _partitions_are_free_before_they_are_given_up() -> Patches:
    known = reconciliation.reconciled

    def forget(current: Any, target: Any, epoch: int, _owned: Any, is_free: Any) -> Any:
        return known(current, target, epoch, frozenset(), is_free)

    return [patch.object(turns, "reconciled", forget)]


def _a_retry_goes_on_towards_the_target() -> Patches:
    known = Admission._go_on

    def go_on(self: Admission, *arguments: Any) -> Any:
        found = known(self, *arguments)
        return found._replace(is_retry=False) if isinstance(found, Admitted) else found

    return [patch.object(Admission, "_go_on", go_on)]


def _any_epoch_heartbeats() -> Patches:
    known = Admission._go_on

    def go_on(self: Admission, member_id: str, value: Any, request: Any) -> Any:
        epoch = self._state.currents[member_id].epoch
        if request.member_epoch > 0 and epoch > 0:
            request = request._replace(member_epoch=epoch)
        return known(self, member_id, value, request)

    return [patch.object(Admission, "_go_on", go_on)]


def _heartbeats_are_answered_before_they_are_stored() -> Patches:
    known = Storing.finish

    def finish(self: Storing, store: Any, group: Any, consumer: Any, answers: Any) -> Effects:
        given: Effects = [Reply(reply_id, answer) for reply_id, _, answer in answers]
        return given + known(self, store, group, consumer, ())

    return [patch.object(Storing, "finish", finish)]


def _an_active_static_member_is_replaced() -> Patches:
    def replace(self: Admission, holder: str, member_id: str, request: Any) -> Admitted:
        self._return(holder, member_id, request)
        return Admitted(member_id, frozenset())

    return [patch.object(Admission, "_replace", replace)]


def _members_go_without_a_new_epoch() -> Patches:
    known = Admission.remove

    def remove(self: Admission, member_id: str) -> None:
        must_bump = self._group.must_bump
        known(self, member_id)
        self._group.must_bump = must_bump

    return [patch.object(Admission, "remove", remove)]


def _targets_are_made_again_in_an_epoch() -> Patches:
    known = epochs.begin_epoch

    def begin(consumer: ConsumerGroup, topics: Any, now: Any) -> None:
        before = consumer.state.number
        known(consumer, topics, now)
        if consumer.state.number > before > 0:
            consumer.state.put(EpochKey(consumer.group_id), EpochValue(before, 1))
            consumer.changes.pop((EpochKey, EpochKey(consumer.group_id)))
            consumer.state.target_epoch = before - 1

    return [patch.object(epochs, "begin_epoch", begin)]


def _commits_of_any_epoch_are_accepted() -> Patches:
    return [
        patch.object(offset_commits, "commit_error", lambda *_: ErrorCode.NONE),
    ]


def _commits_of_partitions_not_yet_assigned_are_accepted() -> Patches:
    def none(_consumer: Any, request: Any, _topics: Any) -> list[bool]:
        return [False] * len(request.partitions)

    return [patch.object(offset_commits, "stale_partitions", none)]


def _a_failed_append_is_not_undone() -> Patches:
    def keep(
        _self: Storing, _store: Any, _group: Any, consumer: ConsumerGroup, _now: Any
    ) -> Effects:
        consumer.token = None
        return []

    return [patch.object(Storing, "_undo", keep)]


def _an_earlier_incarnation_goes_on() -> Patches:
    known = Admission._put_current

    def put(self: Admission, member_id: str, value: Any) -> None:
        current = self._state.currents.get(member_id)
        is_rejoin = value is not None and current is not None and value.epoch == 0
        known(self, member_id, value)
        if is_rejoin:
            known(self, member_id, value._replace(epoch=current.epoch))

    return [patch.object(Admission, "_put_current", put)]


def _epochs_begin_anew_after_the_other_protocol() -> Patches:
    def begin(group: Any) -> ConsumerGroup:
        if group.consumer is None:
            group.consumer = ConsumerGroup(group.group_id, ConsumerState())
        found: ConsumerGroup = group.consumer
        return found

    return [patch.object(heartbeats, "_begin", begin)]


def _changes_of_topics_are_not_noticed() -> Patches:
    return [patch.object(epochs, "metadata_hash", lambda *_: 1)]


def _members_that_give_nothing_up_stay() -> Patches:
    known = ConsumerSessions.timer_fired

    def fired(self: ConsumerSessions, group: Any, key: Any, now: Any) -> Effects | None:
        return [] if key.kind.value == "revocation" else known(self, group, key, now)

    return [patch.object(ConsumerSessions, "timer_fired", fired)]


def _late_timers_are_forgotten_while_storing() -> Patches:
    known = Backlog.timer_fired

    def fired(self: Backlog, store: Any, group: Any, consumer: Any, *fired: Any) -> Effects:
        return known(self, store, group, consumer, *fired) if consumer.token is None else []

    return [patch.object(Backlog, "timer_fired", fired)]


def _flaws_of_heartbeats_are_not_looked_for() -> Patches:
    return [patch.object(groups, "flaw", lambda *_: None)]


def _joins_do_not_wait_for_topics() -> Patches:
    return [patch.object(regexes, "is_known", lambda *_: True)]


def _requests_do_not_wait_for_what_is_stored() -> Patches:
    return [patch.object(Storing, "must_wait", lambda *_: None)]


def _a_static_member_that_is_away_is_answered() -> Patches:
    known = Admission.leave

    def leave(self: Admission, request: Any) -> Any:
        before = self._state.currents.get(request.member_id)
        found = known(self, request)
        after = self._state.currents.get(request.member_id)
        if before is not None and after is not None:
            self._put_current(request.member_id, after._replace(previous_epoch=before.epoch))
        return found

    return [patch.object(Admission, "leave", leave)]


MUTATIONS: Mapping[str, Callable[[], Patches]] = {
    name.removeprefix("_"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__
}


@contextmanager
def apply(name: str) -> Iterator[None]:
    """Take the guard away while the context lasts."""
    patches = MUTATIONS[name]()
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()
