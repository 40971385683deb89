"""The decision of EndTxn, in both generations of the protocol.

An open transaction is ended by its own session: versions 0 to 4 keep the epoch, version 5 raises it. Otherwise the request
is a repetition, or late. It is answered from the transaction that ended last, `ended`, if it names its identity:

| it was | commit, v0-4 | commit, v5 | abort, v0-4 | abort, v5 |
|---|---|---|---|---|
| committed | 0 | 0, the current identity | 48 | 48 |
| aborted by its producer | 48 | 48 | 0 | 0, the current identity |
| timed out | 49: clients take a new epoch | 120: they abort | 0 | 0, the current identity |
| aborted for a new instance | 90 | 90 | 90 | 90 |

Once a session has begun after it (Empty), versions 0 to 4 still get 0 for the truth, which gives nothing away, and all else
gets 90. The current identity with nothing open: 48; an abort of version 5 is an empty transaction, which raises the epoch.
"""

from __future__ import annotations

from echoless.coordinators.events import Now
from echoless.coordinators.transactions.answers import DONE, TransactionAnswer, Transition
from echoless.coordinators.transactions.config import EPOCH_BUMP_VERSION, StepInputs
from echoless.coordinators.transactions.identity import EPOCH_MAX, ProducerIdentity, is_exhausted
from echoless.coordinators.transactions.initialisations import NO_SPARE_ID
from echoless.coordinators.transactions.requests import EndTransaction
from echoless.coordinators.transactions.transitions import identity_after, identity_of, prepared
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import (
    EndedTransaction,
    TransactionEnd,
    TransactionStatus,
    TransactionValue,
)

_FENCED = TransactionAnswer(ErrorCode.PRODUCER_FENCED)
_INVALID_STATE = TransactionAnswer(ErrorCode.INVALID_TXN_STATE)


def decide_end(
    value: TransactionValue | None, request: EndTransaction, now: Now, given: StepInputs
) -> Transition | TransactionAnswer:
    """Decide while nothing is under way."""
    if value is None:
        return TransactionAnswer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    asked = ProducerIdentity(request.producer_id, request.producer_epoch)
    is_current = asked == identity_of(value)
    if value.status is TransactionStatus.ONGOING:
        return _end(value, request, now, given) if is_current else _stranger(value, asked)
    ended = ended_transaction(value)
    if ended is not None and asked == ended[:2]:
        answer = _repeated(value, request, ended.end)
        if not is_current or answer.error_code is ErrorCode.NONE:
            return answer
    if not is_current:
        return _stranger(value, asked)
    if request.raises_epoch and not request.is_commit:
        return _end(value, request, now, given)
    return _INVALID_STATE


def leaves_leaders_behind(value: TransactionValue | None, request: EndTransaction) -> bool:
    """Whether the client's next batch could be taken for one of the transaction that this request ends.

    A client of the second generation sends it without asking first, and of the first one under the same epoch. One that has changed
    from the second to the first in between does both. So its answer waits until the markers are in.
    """
    is_of_second = value is not None and value.client_version >= EPOCH_BUMP_VERSION
    return is_of_second and not request.raises_epoch


def ended_transaction(value: TransactionValue) -> EndedTransaction | None:
    """The transaction that ended last; of a record of Kafka's what its state says about it."""
    if value.ended is not None or not value.status.is_complete:
        return value.ended
    is_commit = value.status is TransactionStatus.COMPLETE_COMMIT
    if value.client_version < EPOCH_BUMP_VERSION:
        end = TransactionEnd.COMMITTED if is_commit else TransactionEnd.ABORTED
        return EndedTransaction(value.producer_id, value.producer_epoch, end)
    end = TransactionEnd.COMMITTED if is_commit else TransactionEnd.TIMED_OUT
    if value.producer_epoch == 0:
        return EndedTransaction(value.previous_producer_id, EPOCH_MAX - 1, end)
    return EndedTransaction(value.producer_id, value.producer_epoch - 1, end)


def _end(
    value: TransactionValue, request: EndTransaction, now: Now, given: StepInputs
) -> Transition | TransactionAnswer:
    changed = prepared(
        value,
        TransactionEnd.COMMITTED if request.is_commit else TransactionEnd.ABORTED,
        now,
        client_version=request.client_version,
        raises_epoch=request.raises_epoch,
        spare=given.spare_producer_id,
    )
    if changed is None:
        return NO_SPARE_ID
    if not request.raises_epoch:
        return Transition(changed, DONE)
    return Transition(changed, TransactionAnswer(ErrorCode.NONE, *identity_after(changed)))


def _repeated(
    value: TransactionValue, request: EndTransaction, end: TransactionEnd
) -> TransactionAnswer:
    """Answer the session of the transaction that ended last."""
    if end is TransactionEnd.FENCED:
        return _FENCED
    is_true = request.is_commit == (end is TransactionEnd.COMMITTED)
    if value.status is TransactionStatus.EMPTY:
        may_say = is_true and end is not TransactionEnd.TIMED_OUT and not request.raises_epoch
        return DONE if may_say else _FENCED
    if not is_true:
        return _contradicted(request, end)
    if not request.raises_epoch:
        return DONE
    if value.producer_epoch == EPOCH_MAX:  # which an abort left behind; it is not for clients
        return _FENCED
    return TransactionAnswer(ErrorCode.NONE, *identity_of(value))


def _contradicted(request: EndTransaction, end: TransactionEnd) -> TransactionAnswer:
    if end is not TransactionEnd.TIMED_OUT:
        return _INVALID_STATE
    if request.raises_epoch:
        return TransactionAnswer(ErrorCode.TRANSACTION_ABORTABLE)
    return TransactionAnswer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def _stranger(value: TransactionValue, asked: ProducerIdentity) -> TransactionAnswer:
    """Answer a session that has neither the open transaction nor the one before."""
    if asked.producer_id == value.producer_id:
        return _FENCED
    if asked.producer_id == value.previous_producer_id and is_exhausted(asked.producer_epoch):
        return _FENCED
    return TransactionAnswer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
