"""One transactional id as a state machine: `step(state, event, now, given)` gives the next state, and effects.

1. A request is decided from the committed value alone. What it changes is stored; the answer waits for the commit.
2. From the commit of Prepare on the end is decided: markers go to every partition, again and again until each is in.
3. Then Complete is stored, again and again. Until that is committed nothing else changes.

A crash after any step: the next coordinator loads the last committed record (`load`). After 1 the request was either not
answered or is in it; after 2 it sends the markers again, with the same number; after 3 likewise, or nothing is left.

While something is under way, requests are held for a little, then refused with 51. A record whose outcome is not known is
still under way: the opposite end is never stored behind it.
"""

from __future__ import annotations

from echoless.coordinators.append_errors import coordinator_code
from echoless.coordinators.effects import CancelTimer, LogLine, Reply, SetTimer
from echoless.coordinators.events import Abandoned, Now, Requested, TimerFired
from echoless.coordinators.transactions.answers import TransactionAnswer, Transition
from echoless.coordinators.transactions.config import StepInputs
from echoless.coordinators.transactions.connection_order import is_overtaken, with_connection
from echoless.coordinators.transactions.effects import (
    COMPLETION,
    TIMEOUT,
    CloseConnection,
    ForgetTransactionalId,
    SendMarkers,
    StoreTransaction,
    TakeProducerId,
    TransactionEffects,
    TransactionTimer,
    TransactionTimerKind,
)
from echoless.coordinators.transactions.ends import decide_end, leaves_leaders_behind
from echoless.coordinators.transactions.events import (
    ExpiryCheck,
    MarkerAnswered,
    MarkersWritten,
    PartitionDeleted,
    TransactionEvent,
    TransactionNotStored,
    TransactionStored,
)
from echoless.coordinators.transactions.initialisations import (
    aborted_by_coordinator,
    decide_init,
    init_error,
)
from echoless.coordinators.transactions.joins import decide_add, verified
from echoless.coordinators.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitTransactionalId,
    TransactionRequest,
    VerifyPartitions,
)
from echoless.coordinators.transactions.state import PendingStore, TransactionalIdState
from echoless.coordinators.transactions.transitions import completed, expires_at
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import (
    TransactionEnd,
    TransactionPartition,
    TransactionStatus,
    TransactionValue,
)

Stepped = tuple[TransactionalIdState, TransactionEffects]


def load(value: TransactionValue, now: Now) -> Stepped:
    """Begin to serve an id from its last committed record.

    A transaction that is open gets its whole timeout again: the start was taken from another broker's clock.
    """
    return _adopt(TransactionalIdState(value=value), now)


def step(
    state: TransactionalIdState, event: TransactionEvent, now: Now, given: StepInputs
) -> Stepped:
    """Process one event."""
    changed, effects = _process(state, event, now, given)
    while changed.held and not changed.is_pending:
        first, *others = changed.held
        effects.append(CancelTimer(_hold(first.reply_id)))
        changed = changed._replace(held=tuple(others))
        changed, more = _request(changed, first, now, given)
        effects += more
    return changed, effects


def _process(
    state: TransactionalIdState, event: TransactionEvent, now: Now, given: StepInputs
) -> Stepped:
    match event:
        case Requested():
            return _request(state, event, now, given)
        case TransactionStored():
            return _stored(state, now)
        case TransactionNotStored():
            return _not_stored(state, event, now, given)
        case MarkerAnswered():
            return _marker_answered(state, event, now)
        case MarkersWritten():
            return _markers_written(state, event, now)
        case PartitionDeleted():
            return _partition_deleted(state, event, now)
        case TimerFired(key):
            return _timer(state, key, now, given)
        case ExpiryCheck():
            return _expiry(state, now, given)
        case Abandoned(reply_id):
            return _drop_held(state, reply_id), [CancelTimer(_hold(reply_id))]


def _request(
    state: TransactionalIdState,
    event: Requested[TransactionRequest],
    now: Now,
    given: StepInputs,
) -> Stepped:
    reply_id, request = event
    if isinstance(request, InitTransactionalId):
        code = init_error(request, given.config)
        if code is not ErrorCode.NONE:
            return state, [_refused(reply_id, code)]
    if isinstance(request, VerifyPartitions):
        return state, [Reply(reply_id, verified(state.value, request))]
    if isinstance(request, AddPartitions | EndTransaction):
        if is_overtaken(state, request, given):
            return state, [CloseConnection(reply_id)]
        state = with_connection(state, request)
    if state.is_pending:
        return _held(state, event, now, given)
    decision = _decide(state.value, request, now, given)
    if isinstance(decision, TransactionAnswer):
        return state, [Reply(reply_id, decision)]
    waits = isinstance(request, EndTransaction) and leaves_leaders_behind(state.value, request)
    return _store(state, decision.value, given, reply_id, decision.answer, waits_for_markers=waits)


def _decide(
    value: TransactionValue | None,
    request: InitTransactionalId | AddPartitions | EndTransaction,
    now: Now,
    given: StepInputs,
) -> Transition | TransactionAnswer:
    match request:
        case InitTransactionalId():
            return decide_init(value, request, now, given)
        case AddPartitions():
            return decide_add(value, request, now)
        case EndTransaction():
            return decide_end(value, request, now, given)


def _held(
    state: TransactionalIdState,
    event: Requested[TransactionRequest],
    now: Now,
    given: StepInputs,
) -> Stepped:
    """Hold a request until what is under way has ended."""
    config = given.config
    if not config.hold_ms or len(state.held) >= config.held_max:
        return state, [_refused(event.reply_id, ErrorCode.CONCURRENT_TRANSACTIONS)]
    timer = SetTimer(_hold(event.reply_id), now.monotonic_ms + config.hold_ms)
    return state._replace(held=(*state.held, event)), [timer]


def _store(
    state: TransactionalIdState,
    value: TransactionValue | None,
    given: StepInputs,
    reply_id: int | None = None,
    answer: TransactionAnswer | None = None,
    *,
    waits_for_markers: bool = False,
) -> Stepped:
    effects: TransactionEffects = [StoreTransaction(value)]
    spare = given.spare_producer_id
    if value is not None and spare is not None and spare in _ids(value):
        effects.insert(0, TakeProducerId(spare))
    storing = PendingStore(value, reply_id, answer, waits_for_markers)
    return state._replace(storing=storing), effects


def _ids(value: TransactionValue) -> tuple[int, int]:
    return value.producer_id, value.next_producer_id


def _stored(state: TransactionalIdState, now: Now) -> Stepped:
    storing, before = state.storing, state.value
    assert storing is not None, "a record is committed that was not to be stored"
    effects: TransactionEffects = []
    if storing.reply_id is not None and storing.answer is not None:
        if storing.waits_for_markers:
            state = state._replace(unanswered=(storing.reply_id, storing.answer))
        else:
            effects.append(Reply(storing.reply_id, storing.answer))
    if storing.value is None:
        return TransactionalIdState(held=state.held), [*effects, ForgetTransactionalId()]
    is_joined = (
        before is not None and before.status is storing.value.status is TransactionStatus.ONGOING
    )
    if storing.value.status.is_complete and state.unanswered is not None:
        effects.append(Reply(*state.unanswered))
        state = state._replace(unanswered=None)
    state = state._replace(value=storing.value, storing=None)
    adopted, more = _adopt(state, now, deadline_ms=state.deadline_ms if is_joined else None)
    return adopted, effects + more


def _adopt(state: TransactionalIdState, now: Now, deadline_ms: int | None = None) -> Stepped:
    """Do what follows from a record that is committed."""
    value = state.value
    assert value is not None
    if value.status is TransactionStatus.ONGOING:
        if value.is_two_phase:
            return state, []
        if deadline_ms is None:
            deadline_ms = now.monotonic_ms + value.timeout_ms
        return state._replace(deadline_ms=deadline_ms), [SetTimer(TIMEOUT, deadline_ms)]
    if not value.status.is_prepared:
        return state, []
    state = state._replace(unmarked=value.partitions)
    if not value.partitions:
        completing, effects = _complete(state, now)
        return completing, [CancelTimer(TIMEOUT), *effects]
    return state, [CancelTimer(TIMEOUT), _markers(value, value.partitions)]


def _markers(
    value: TransactionValue, partitions: frozenset[TransactionPartition], *, is_retry: bool = False
) -> SendMarkers:
    return SendMarkers(
        *(value.producer_id, value.producer_epoch, value.number),
        value.status is TransactionStatus.PREPARE_COMMIT,
        *(partitions, value.client_version, is_retry),
    )


def _complete(state: TransactionalIdState, now: Now) -> Stepped:
    value = state.value
    assert value is not None
    changed = completed(value, now)
    return state._replace(storing=PendingStore(changed)), [StoreTransaction(changed)]


def _not_stored(
    state: TransactionalIdState, event: TransactionNotStored, now: Now, given: StepInputs
) -> Stepped:
    storing, value = state.storing, state.value
    assert storing is not None, "a record is refused that was not to be stored"
    effects: TransactionEffects = []
    if storing.reply_id is not None:
        effects.append(_refused(storing.reply_id, coordinator_code(event.error_code)))
    if event.may_commit:
        return state._replace(storing=PendingStore(storing.value)), effects
    state = state._replace(storing=None)
    if value is None:
        effects.append(ForgetTransactionalId())
    elif value.status.is_prepared:
        effects.append(SetTimer(COMPLETION, now.monotonic_ms + given.config.retry_ms))
    elif value.status is TransactionStatus.ONGOING and not value.is_two_phase:
        # Its time may have come meanwhile.
        at_ms = max(state.deadline_ms, now.monotonic_ms + given.config.retry_ms)
        effects.append(SetTimer(TIMEOUT, at_ms))
    return state, effects


def _marker_answered(state: TransactionalIdState, event: MarkerAnswered, now: Now) -> Stepped:
    value = _awaiting(state, event)
    if value is None:
        return state, []
    if event.error_code is ErrorCode.NONE:
        return _marked(state, frozenset({event.partition}), now)
    effects: TransactionEffects = []
    if event.error_code in _FATAL_TO_MARKERS:
        place = f"{event.partition.topic}-{event.partition.partition}"
        effects.append(
            LogLine(
                f"{place} refuses the marker of producer {value.producer_id} epoch "
                f"{value.producer_epoch} with {event.error_code.name}, although its transaction "
                f"{event.number} is decided here; it is sent again"
            )
        )
    effects.append(_markers(value, frozenset({event.partition}), is_retry=True))
    return state, effects


def _markers_written(state: TransactionalIdState, event: MarkersWritten, now: Now) -> Stepped:
    value = state.value
    if value is None or (value.producer_id, value.number) != event[:2]:
        return state, []
    written = event.partitions & state.unmarked
    return _marked(state, written, now) if written else (state, [])


_FATAL_TO_MARKERS = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)
"""With which Kafka gives a transaction up, so that it stays in Prepare."""


def _partition_deleted(state: TransactionalIdState, event: PartitionDeleted, now: Now) -> Stepped:
    if _awaiting(state, event) is None:
        return state, []
    line = (
        f"{event.partition.topic}-{event.partition.partition} gets no marker of transaction "
        f"{event.number}: its topic was deleted"
    )
    marked, effects = _marked(state, frozenset({event.partition}), now)
    return marked, [LogLine(line), *effects]


def _awaiting(
    state: TransactionalIdState, event: MarkerAnswered | PartitionDeleted
) -> TransactionValue | None:
    """The value, if a marker of this transaction is missing in the partition. Late answers name another transaction."""
    value = state.value
    if value is None or event.partition not in state.unmarked:
        return None
    return value if (value.producer_id, value.number) == event[:2] else None


def _marked(
    state: TransactionalIdState, partitions: frozenset[TransactionPartition], now: Now
) -> Stepped:
    state = state._replace(unmarked=state.unmarked - partitions)
    return (state, []) if state.unmarked else _complete(state, now)


def _timer(
    state: TransactionalIdState, key: TransactionTimer, now: Now, given: StepInputs
) -> Stepped:
    match key.kind:
        case TransactionTimerKind.TIMEOUT:
            return _time_out(state, now, given)
        case TransactionTimerKind.COMPLETION:
            is_due = state.is_pending and state.storing is None and not state.unmarked
            return _complete(state, now) if is_due else (state, [])
        case TransactionTimerKind.HOLD:
            changed = _drop_held(state, key.reply_id)
            if changed is state:
                return state, []
            return changed, [_refused(key.reply_id, ErrorCode.CONCURRENT_TRANSACTIONS)]


def _time_out(state: TransactionalIdState, now: Now, given: StepInputs) -> Stepped:
    value = state.value
    if value is None or state.is_pending or value.status is not TransactionStatus.ONGOING:
        return state, []
    if value.is_two_phase:
        return state, []
    if now.monotonic_ms < state.deadline_ms:
        return state, [SetTimer(TIMEOUT, state.deadline_ms)]
    changed = aborted_by_coordinator(value, TransactionEnd.TIMED_OUT, now, given)
    if changed is None:
        return state, [SetTimer(TIMEOUT, now.monotonic_ms + given.config.retry_ms)]
    stepped, effects = _store(state, changed, given)
    line = (
        f"transaction {value.number} of producer {value.producer_id} epoch {value.producer_epoch} "
        f"is aborted: it has been open for more than {value.timeout_ms} ms"
    )
    return stepped, [LogLine(line), *effects]


def _expiry(state: TransactionalIdState, now: Now, given: StepInputs) -> Stepped:
    if state.value is None or state.is_pending:
        return state, []
    expiration_ms = given.config.transactional_id_expiration_ms
    at_ms = expires_at(state.value, expiration_ms)
    if at_ms is None or now.wall_ms < at_ms:
        return state, []
    stepped, effects = _store(state, None, given)
    line = f"producer {state.value.producer_id} has been idle for {expiration_ms} ms: its transactional id expires"
    return stepped, [LogLine(line), *effects]


def _drop_held(state: TransactionalIdState, reply_id: int) -> TransactionalIdState:
    held = tuple(event for event in state.held if event.reply_id != reply_id)
    return state if len(held) == len(state.held) else state._replace(held=held)


def _hold(reply_id: int) -> TransactionTimer:
    return TransactionTimer(TransactionTimerKind.HOLD, reply_id)


def _refused(reply_id: int, code: ErrorCode) -> Reply[TransactionAnswer]:
    return Reply(reply_id, TransactionAnswer(code))
