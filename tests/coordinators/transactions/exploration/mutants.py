"""The core with one rule taken out of it, to see that the search misses it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest.mock import patch

from echoless.coordinators.effects import Reply, SetTimer
from echoless.coordinators.transactions import ends, initialisations, joins, transactional_id
from echoless.coordinators.transactions.answers import DONE, TransactionAnswer
from echoless.coordinators.transactions.effects import TIMEOUT, SendMarkers
from echoless.coordinators.transactions.events import TransactionNotStored
from echoless.coordinators.transactions.identity import ProducerIdentity
from echoless.coordinators.transactions.state import PendingStore
from echoless.coordinators.transactions.transactional_id import Stepped
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records import transaction_records
from echoless.protocol.state_records.transaction_records import TransactionEnd

Patches = list[Any]


def _answers_come_before_the_commit() -> Patches:
    store = transactional_id._store

    def eager(
        state: Any, value: Any, given: Any, reply_id: Any = None, answer: Any = None, **_: bool
    ) -> Stepped:
        changed, effects = store(state, value, given)
        return changed, [*effects, *([] if reply_id is None else [Reply(reply_id, answer)])]

    return [patch.object(transactional_id, "_store", eager)]


def _markers_go_out_before_the_commit() -> Patches:
    store = transactional_id._store

    def eager(state: Any, value: Any, *others: Any, **named: bool) -> Stepped:
        changed, effects = store(state, value, *others, **named)
        if value is not None and value.status.is_prepared and value.partitions:
            effects.append(transactional_id._markers(value, value.partitions))
        return changed, effects

    return [patch.object(transactional_id, "_store", eager)]


def _an_unknown_outcome_is_a_failure() -> Patches:
    not_stored = transactional_id._not_stored

    def forget(state: Any, event: TransactionNotStored, now: Any, given: Any) -> Stepped:
        return not_stored(state, TransactionNotStored(event.error_code), now, given)

    return [patch.object(transactional_id, "_not_stored", forget)]


def _a_fenced_instance_comes_back_by_an_abort() -> Patches:
    abort = initialisations.aborted_by_coordinator

    def as_timeout(value: Any, _end: Any, now: Any, given: Any) -> Any:
        return abort(value, TransactionEnd.TIMED_OUT, now, given)

    return [patch.object(initialisations, "aborted_by_coordinator", as_timeout)]


def _a_late_answer_counts_for_the_next_transaction() -> Patches:
    def awaiting(state: Any, event: Any) -> Any:
        return state.value if event.partition in state.unmarked else None

    return [patch.object(transactional_id, "_awaiting", awaiting)]


def _an_answer_of_an_expired_life_counts() -> Patches:
    def awaiting(state: Any, event: Any) -> Any:
        is_same = state.value is not None and state.value.number == event.number
        return state.value if is_same and event.partition in state.unmarked else None

    return [patch.object(transactional_id, "_awaiting", awaiting)]


def _one_marker_is_enough() -> Patches:
    def marked(state: Any, _partition: Any, now: Any) -> Stepped:
        return transactional_id._complete(state._replace(unmarked=frozenset()), now)

    return [patch.object(transactional_id, "_marked", marked)]


def _a_partition_gets_no_marker() -> Patches:
    def markers(value: Any, partitions: Any, *, is_retry: bool = False) -> SendMarkers:
        return send(value, frozenset(sorted(partitions)[:1]), is_retry=is_retry)

    send = transactional_id._markers
    return [patch.object(transactional_id, "_markers", markers)]


def _an_old_epoch_adds_partitions() -> Patches:
    def error(value: Any, request: Any) -> ErrorCode:
        known = request.producer_id == value.producer_id
        return ErrorCode.NONE if known else ErrorCode.INVALID_PRODUCER_ID_MAPPING

    return [patch.object(joins, "_identity_error", error)]


def _an_old_epoch_ends_the_transaction() -> Patches:
    decide = ends.decide_end

    def lenient(value: Any, request: Any, now: Any, given: Any) -> Any:
        if value is not None and request.producer_id == value.producer_id:
            request = request._replace(producer_epoch=value.producer_epoch)
        return decide(value, request, now, given)

    return [patch.object(transactional_id, "decide_end", lenient)]


def _a_new_instance_leaves_the_old_one_its_retry() -> Patches:
    emptied = initialisations.emptied

    def keep(value: Any, identity: Any, timeout_ms: int, now: Any, **_: Any) -> Any:
        last_epoch = -1 if value is None else value.producer_epoch
        return emptied(value, identity, timeout_ms, now, last_epoch=last_epoch)

    return [patch.object(initialisations, "emptied", keep)]


def _an_old_session_aborts_its_successors_transaction() -> Patches:
    """Kafka's way."""
    decide = initialisations.decide_init

    def lenient(value: Any, request: Any, now: Any, given: Any) -> Any:
        answer = decide(value, request, now, given)
        if answer == TransactionAnswer(ErrorCode.PRODUCER_FENCED) and value.partitions:
            return initialisations._abort(value, now, given, is_current=False)
        return answer

    return [patch.object(transactional_id, "decide_init", lenient)]


def _the_last_epoch_is_followed_by_the_first() -> Patches:
    def wrapped(current: Any, _spare: Any) -> ProducerIdentity:
        return ProducerIdentity(current.producer_id, (current.producer_epoch + 1) % 32_767)

    return [patch.object(initialisations, "next_identity", wrapped)]


def _the_last_epoch_is_not_stored() -> Patches:
    tags = transaction_records._tags

    def fewer(value: Any) -> Any:
        return tags(value._replace(last_epoch=-1))

    return [patch.object(transaction_records, "_tags", fewer)]


def _a_repetition_is_always_right() -> Patches:
    return [patch.object(ends, "_contradicted", lambda *_: DONE)]


def _the_result_is_forgotten() -> Patches:
    """A repeated end is answered from the state alone."""
    return [patch.object(ends, "ended_transaction", lambda _value: None)]


def _the_timeout_aborts_what_is_being_committed() -> Patches:
    time_out = transactional_id._time_out

    def eager(state: Any, now: Any, given: Any) -> Stepped:
        return time_out(state._replace(storing=None), now, given)

    return [patch.object(transactional_id, "_time_out", eager)]


def _a_timeout_is_forgotten_when_a_record_is_refused() -> Patches:
    not_stored = transactional_id._not_stored

    def silent(*given: Any) -> Stepped:
        state, effects = not_stored(*given)
        return state, [each for each in effects if not _sets_timeout(each)]

    return [patch.object(transactional_id, "_not_stored", silent)]


def _sets_timeout(effect: Any) -> bool:
    return isinstance(effect, SetTimer) and effect.key == TIMEOUT


def _a_fence_leaves_the_epoch() -> Patches:
    prepared = initialisations.prepared

    def same(*given: Any, raises_epoch: bool, **others: Any) -> Any:
        return prepared(*given, raises_epoch=False, **others)

    return [patch.object(initialisations, "prepared", same)]


def _a_load_takes_the_end_for_complete() -> Patches:
    load = transactional_id.load

    def hasty(value: Any, now: Any) -> Stepped:
        state, effects = load(value, now)
        if not state.unmarked:
            return state, effects
        complete, more = transactional_id._complete(state._replace(unmarked=frozenset()), now)
        return complete, effects + more

    return [patch.object(transactional_id, "load", hasty)]


def _an_answer_is_lost_with_an_unknown_outcome() -> Patches:
    not_stored = transactional_id._not_stored

    def silent(state: Any, event: TransactionNotStored, now: Any, given: Any) -> Stepped:
        if event.may_commit:
            return state._replace(storing=PendingStore(state.storing.value)), []
        return not_stored(state, event, now, given)

    return [patch.object(transactional_id, "_not_stored", silent)]


class _Anything:
    """Unequal to nothing."""

    def __ne__(self, _other: object) -> bool:
        return False

    def __eq__(self, _other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def _a_kept_transaction_takes_partitions() -> Patches:
    return [patch.object(joins, "NO_PRODUCER_EPOCH", _Anything())]


def _a_kept_transaction_leaves_its_old_session_in() -> Patches:
    def same(value: Any, _now: Any, *, last_epoch: int) -> Any:
        return value._replace(kept_epoch=value.producer_epoch, last_epoch=last_epoch)

    return [patch.object(initialisations, "kept", same)]


def _the_two_phases_are_not_stored() -> Patches:
    tags = transaction_records._tags

    def without(value: Any) -> Any:
        return ((tag, field) for tag, field in tags(value) if tag != transaction_records._TWO_PHASE)

    return [patch.object(transaction_records, "_tags", without)]


_MUTANTS: Final[tuple[Callable[[], Patches], ...]] = (
    _answers_come_before_the_commit,
    _markers_go_out_before_the_commit,
    _an_unknown_outcome_is_a_failure,
    _a_fenced_instance_comes_back_by_an_abort,
    _a_late_answer_counts_for_the_next_transaction,
    _an_answer_of_an_expired_life_counts,
    _one_marker_is_enough,
    _a_partition_gets_no_marker,
    _an_old_epoch_adds_partitions,
    _an_old_epoch_ends_the_transaction,
    _a_new_instance_leaves_the_old_one_its_retry,
    _an_old_session_aborts_its_successors_transaction,
    _the_last_epoch_is_followed_by_the_first,
    _the_last_epoch_is_not_stored,
    _a_repetition_is_always_right,
    _the_result_is_forgotten,
    _the_timeout_aborts_what_is_being_committed,
    _a_timeout_is_forgotten_when_a_record_is_refused,
    _a_fence_leaves_the_epoch,
    _a_load_takes_the_end_for_complete,
    _an_answer_is_lost_with_an_unknown_outcome,
    _a_kept_transaction_takes_partitions,
    _a_kept_transaction_leaves_its_old_session_in,
    _the_two_phases_are_not_stored,
)
MUTANTS: Final = {mutant.__name__.strip("_").replace("_", " "): mutant for mutant in _MUTANTS}
"""By what they do."""


@contextlib.contextmanager
def mutated(name: str) -> Iterator[None]:
    """The core is the mutant of that name, within."""
    with contextlib.ExitStack() as stack:
        for each in MUTANTS[name]():
            stack.enter_context(each)
        yield
