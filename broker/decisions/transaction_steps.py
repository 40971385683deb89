"""Makes the recorded steps of transactions from requests, answers and states. Values only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from echoless.broker.decisions.events import TransactionStep, TransactionStepName
from echoless.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from echoless.protocol.state_records.transaction_records import TransactionPartition

PARTITIONS_MAX: Final = 20
"""Partitions that a step names."""
_NUMBER_TO_COME: Final = 0


def new_step(
    now_ms: int,
    step: TransactionStepName,
    identity: tuple[int, int],
    places: Iterable[TransactionPartition],
    *,
    result: str = "",
    error_code: ErrorCode = ErrorCode.NONE,
    reason: str = "",
) -> TransactionStep:
    """A step of the producer with this id and epoch, without who has asked for it."""
    shown = sorted((one.topic, one.partition) for one in places)
    return TransactionStep(
        _NUMBER_TO_COME,
        now_ms,
        step,
        "",
        *identity,
        tuple(shown[:PARTITIONS_MAX]),
        max(0, len(shown) - PARTITIONS_MAX),
        result=result,
        error_code=error_code,
        reason=reason,
    )


def marker_step(
    transactional_id: str,
    identity: tuple[int, int],
    places: Iterable[TransactionPartition],
    now_ms: int,
    *,
    is_commit: bool,
    base_offset: int = -1,
    error_code: ErrorCode = ErrorCode.NONE,
) -> TransactionStep:
    """The step of some partitions' leader: markers, or the refusal of them. `base_offset`: of a marker that is alone."""
    is_refused = error_code is not ErrorCode.NONE
    step = TransactionStepName.REFUSE if is_refused else TransactionStepName.MARKER
    result = "commit" if is_commit else "abort"
    made = new_step(now_ms, step, identity, places, result=result, error_code=error_code)
    return made._replace(
        transactional_id=transactional_id, base_offset=base_offset, api="write_markers"
    )
