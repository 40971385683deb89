"""The decision of InitProducerId: a new instance, a session that goes on after an error, a retry of either, or a fenced one.

| state | without identity | with the current one | with the one before it | with any other |
|---|---|---|---|---|
| unknown | new producer id | new producer id | | |
| Ongoing | abort, fenced; 51 | abort; 51 | 90 | 90 |
| Ongoing in two phases (KIP-939), to be kept | next epoch, the transaction stays | next epoch, it stays | the current one again | 90 |
| Empty, Complete | next identity | next identity | the current one again | 90 |

"The one before" is stored, and a new instance clears it, so a fenced one never gets in by a retry.
"""

from __future__ import annotations

from echoless.coordinators.events import Now
from echoless.coordinators.transactions.answers import TransactionAnswer, Transition
from echoless.coordinators.transactions.config import StepInputs, TransactionConfig
from echoless.coordinators.transactions.identity import (
    EPOCH_MAX,
    ProducerIdentity,
    is_exhausted,
    next_identity,
)
from echoless.coordinators.transactions.requests import InitTransactionalId
from echoless.coordinators.transactions.transitions import (
    emptied,
    identity_of,
    kept,
    prepared,
)
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_START,
    TransactionEnd,
    TransactionStatus,
    TransactionValue,
)

NO_SPARE_ID = TransactionAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
NO_TIMEOUT_MS = 2**31 - 1
_FENCED = TransactionAnswer(ErrorCode.PRODUCER_FENCED)
_ENDS = TransactionAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)


def init_error(request: InitTransactionalId, config: TransactionConfig) -> ErrorCode:
    """The error of a request that makes no sense whatever the state; NONE without one."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if request.is_two_phase:
        if not config.two_phase_commit_enable:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return ErrorCode.NONE
    if request.keeps_prepared:
        return ErrorCode.INVALID_REQUEST
    if not 0 < request.timeout_ms <= config.transaction_max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def decide_init(
    value: TransactionValue | None, request: InitTransactionalId, now: Now, given: StepInputs
) -> Transition | TransactionAnswer:
    """Decide while nothing is under way."""
    asked = ProducerIdentity(request.producer_id, request.producer_epoch)
    is_new = request.producer_id == NO_PRODUCER_ID
    if value is None:
        return _begin(None, _new_id(given), request, now, NO_PRODUCER_EPOCH)
    is_current = asked == identity_of(value)
    if value.status is TransactionStatus.ONGOING:
        if request.keeps_prepared and value.is_two_phase:
            return _keep(value, asked, now, is_new=is_new)
        return _abort(value, now, given, is_current=is_current) if is_new or is_current else _FENCED
    if is_new or is_current:
        following = next_identity(identity_of(value), given.spare_producer_id)
        last_epoch = value.producer_epoch if is_current else NO_PRODUCER_EPOCH
        return _begin(value, following, request, now, last_epoch)
    return _repeat(value, request, now, given) if is_last(value, asked) else _FENCED


def is_last(value: TransactionValue, asked: ProducerIdentity) -> bool:
    """Whether the session had this identity before its current one."""
    if asked.producer_epoch != value.last_epoch:
        return False
    if asked.producer_id == value.producer_id:
        return asked.producer_epoch < value.producer_epoch
    return asked.producer_id == value.previous_producer_id and is_exhausted(asked.producer_epoch)


def _new_id(given: StepInputs) -> ProducerIdentity | None:
    spare = given.spare_producer_id
    return None if spare is None else ProducerIdentity(spare, 0)


def _begin(
    value: TransactionValue | None,
    identity: ProducerIdentity | None,
    request: InitTransactionalId,
    now: Now,
    last_epoch: int,
) -> Transition | TransactionAnswer:
    if identity is None:
        return NO_SPARE_ID
    changed = emptied(
        *(value, identity, _timeout_ms(request), now),
        last_epoch=last_epoch,
        is_two_phase=request.is_two_phase,
    )
    return Transition(changed, TransactionAnswer(ErrorCode.NONE, *identity))


def _timeout_ms(request: InitTransactionalId) -> int:
    """The timeout to store; Kafka takes the longest for none."""
    return NO_TIMEOUT_MS if request.is_two_phase else request.timeout_ms


def _keep(
    value: TransactionValue, asked: ProducerIdentity, now: Now, *, is_new: bool
) -> Transition | TransactionAnswer:
    """Leave the open transaction to the new session, which can only end it."""
    if is_new or asked == identity_of(value):
        last_epoch = NO_PRODUCER_EPOCH if is_new else value.producer_epoch
        changed = kept(value, now, last_epoch=last_epoch)
        return Transition(changed, _kept_answer(changed))
    return _kept_answer(value) if is_last(value, asked) else _FENCED


def _kept_answer(value: TransactionValue) -> TransactionAnswer:
    return TransactionAnswer(
        ErrorCode.NONE,
        *identity_of(value),
        kept_producer_id=value.producer_id,
        kept_producer_epoch=value.kept_epoch,
    )


def _abort(
    value: TransactionValue, now: Now, given: StepInputs, *, is_current: bool
) -> Transition | TransactionAnswer:
    """Abort the open transaction first; the client asks again."""
    changed = aborted_by_coordinator(
        value, TransactionEnd.ABORTED if is_current else TransactionEnd.FENCED, now, given
    )
    return NO_SPARE_ID if changed is None else Transition(changed, _ENDS)


def aborted_by_coordinator(
    value: TransactionValue, end: TransactionEnd, now: Now, given: StepInputs
) -> TransactionValue | None:
    """The abort of the open transaction, which raises the epoch in either generation of the protocol."""
    return prepared(
        *(value, end, now),
        client_version=given.config.transaction_version,
        raises_epoch=True,
        spare=given.spare_producer_id,
    )


def _repeat(
    value: TransactionValue, request: InitTransactionalId, now: Now, given: StepInputs
) -> Transition | TransactionAnswer:
    """Answer a request whose answer was lost with what it gave."""
    if value.producer_epoch == EPOCH_MAX:  # which an abort left behind; it is not for clients
        return _begin(value, _new_id(given), request, now, value.last_epoch)
    answer = TransactionAnswer(ErrorCode.NONE, *identity_of(value))
    terms = (_timeout_ms(request), request.is_two_phase)
    if value.status is TransactionStatus.EMPTY and (value.timeout_ms, value.is_two_phase) == terms:
        return answer
    changed = value._replace(
        status=TransactionStatus.EMPTY,
        timeout_ms=terms[0],
        is_two_phase=request.is_two_phase,
        update_ms=now.wall_ms,
        start_ms=NO_START,
    )
    return Transition(changed, answer)
