"""Steps of transactions, as `/decisions` shows them: what requests have asked for, and what a coordinator decides by itself.

A step is noted when its answer is known, so what is shown has happened: a commit is on all in-sync replicas.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from echoless.broker.decisions.events import TransactionStep, TransactionStepName
from echoless.broker.decisions.transaction_steps import new_step
from echoless.coordinators.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitTransactionalId,
    VerifyPartitions,
)
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import (
    TransactionEnd,
    TransactionPartition,
    TransactionStatus,
    TransactionValue,
)

if TYPE_CHECKING:
    from echoless.coordinators.transactions.answers import TransactionAnswer
    from echoless.coordinators.transactions.coordinator import IdRequest


_BY_ITSELF: Final = {
    TransactionEnd.TIMED_OUT: TransactionStepName.TIME_OUT,
    TransactionEnd.FENCED: TransactionStepName.FENCE,
}
_WHY: Final = {
    TransactionStepName.TIME_OUT: "open for longer than its timeout",
    TransactionStepName.FENCE: "another session has begun",
}


def begins(asked: AddPartitions, value: TransactionValue | None) -> bool:
    """Whether a request that was granted has begun its transaction; `value`: the last committed record of the id."""
    return value is not None and value.partitions == asked.partitions


def added_step(
    transactional_id: str,
    asked: AddPartitions,
    answer: TransactionAnswer,
    now_ms: int,
    is_first: bool,
) -> TransactionStep:
    """The step that a leader's question was."""
    step = named_step(asked, answer, now_ms, is_first=is_first)
    return step._replace(transactional_id=transactional_id, api="add_or_verify")


def named_step(
    asked: InitTransactionalId | AddPartitions | EndTransaction,
    answer: TransactionAnswer,
    now_ms: int,
    *,
    is_first: bool,
) -> TransactionStep:
    """The step that a request was, without who has sent it. `is_first`: it adds the first partitions."""
    identity, result, reason = (asked.producer_id, asked.producer_epoch), "", ""
    places: Iterable[TransactionPartition] = ()
    if isinstance(asked, InitTransactionalId):
        step = TransactionStepName.SESSION
        if answer.error_code is ErrorCode.NONE:
            identity = answer.producer_id, answer.producer_epoch
    elif isinstance(asked, AddPartitions):
        places = asked.partitions
        step = TransactionStepName.BEGIN if is_first else TransactionStepName.ADD
    else:
        step = TransactionStepName.COMMIT if asked.is_commit else TransactionStepName.ABORT
        result = step.value
        if asked.raises_epoch and answer.error_code is ErrorCode.NONE:
            reason = f"goes on in epoch {answer.producer_epoch}"
    if answer.error_code is not ErrorCode.NONE:
        step = TransactionStepName.REFUSE
    return new_step(
        now_ms, step, identity, places, result=result, error_code=answer.error_code, reason=reason
    )


def is_own_step(before: TransactionValue, after: TransactionValue) -> bool:
    """Whether a coordinator has taken a step by itself, when the record `after` is committed."""
    if after.status.is_prepared:
        return after.ended is not None and after.ended.end in _BY_ITSELF
    return after.status.is_complete and before.status.is_prepared


def own_step(
    transactional_id: str, before: TransactionValue, after: TransactionValue, now_ms: int
) -> TransactionStep:
    """The step that it has taken."""
    identity = after.producer_id, after.producer_epoch
    if after.status.is_prepared:
        assert after.ended is not None, "someone has ended it"
        step = _BY_ITSELF[after.ended.end]
        made = new_step(now_ms, step, identity, after.partitions, result="abort", reason=_WHY[step])
    else:
        is_commit = after.status is TransactionStatus.COMPLETE_COMMIT
        step, result = TransactionStepName.COMPLETE, "commit" if is_commit else "abort"
        made = new_step(now_ms, step, identity, before.partitions, result=result)
    return made._replace(transactional_id=transactional_id)


def overtaken_step(asked: IdRequest, now_ms: int) -> TransactionStep:
    """The refusal of a request that came on an older connection than its session's newest: its connection is closed."""
    request = asked.request
    assert not isinstance(request, InitTransactionalId | VerifyPartitions)
    reason = "it came on an older connection than the newest of its session"
    identity = request.producer_id, request.producer_epoch
    made = new_step(now_ms, TransactionStepName.REFUSE, identity, (), reason=reason)
    return made._replace(transactional_id=asked.transactional_id)
