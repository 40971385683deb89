"""Makes the recorded steps of transactions from requests, answers and states. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from echoless.broker.decisions.events import TransactionStep, TransactionStepName
from echoless.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from echoless.protocol.native.transactions import TransactionMarker
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
    marker: TransactionMarker,
    places: Sequence[int],
    now_ms: int,
    base_offset: int,
    error_code: ErrorCode,
) -> TransactionStep:
    """The step of the leader of some of a marker's partitions: it is in, or refused.

    `places`: their indexes in it. `base_offset`: of a marker that is alone, else -1.
    """
    is_refused = error_code is not ErrorCode.NONE
    step = TransactionStepName.REFUSE if is_refused else TransactionStepName.MARKER
    made = new_step(
        *(now_ms, step, (marker.producer_id, marker.producer_epoch)),
        [marker.partitions[place] for place in places],
        result="commit" if marker.is_commit else "abort",
        error_code=error_code,
    )
    return made._replace(
        transactional_id=marker.transactional_id, base_offset=base_offset, api="write_markers"
    )
