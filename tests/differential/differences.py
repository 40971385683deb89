"""The allowed differences, each by its name in the table "Decisions on the protocol".

Both models have judged the batch (`reference.py`), so both answers are predicted exactly; here it
is only said which decision is the reason. The first that applies counts. A disagreement of the
models that nothing here explains is a failure, and so is an answer that its model did not predict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.differential.reference import (
    CORRUPT_MESSAGE,
    DUPLICATE,
    INVALID_REQUEST,
    OUT_OF_ORDER,
    UNKNOWN_PRODUCER,
    Partition,
    Verdict,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """One batch on which the two models differ."""

    kafka: Verdict
    echoless: Verdict
    kafka_partition: Partition
    """As before the batch."""
    echoless_partition: Partition
    producer_id: int
    parted_by: str | None
    """The difference that made the two states of this producer unequal earlier, if one did."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One row of the table. Where one side appends and the other does not, the states part."""

    name: str
    explains: Callable[[Disagreement], bool]


def _is_listed_twice(case: Disagreement) -> bool:
    return case.echoless.error == INVALID_REQUEST


def _has_bytes_left_over(case: Disagreement) -> bool:
    return case.echoless.error == CORRUPT_MESSAGE and case.kafka.error != CORRUPT_MESSAGE


def _starts_on_virgin_partition(case: Disagreement) -> bool:
    return (
        case.kafka.appends
        and case.echoless.error == OUT_OF_ORDER
        and case.echoless_partition.log_end_offset == 0
    )


def _is_unknown_id(case: Disagreement) -> bool:
    return case.kafka.appends and case.echoless.error == UNKNOWN_PRODUCER


def _is_old_repeat(case: Disagreement) -> bool:
    return case.kafka.error == OUT_OF_ORDER and case.echoless.error == DUPLICATE


def _is_in_window(case: Disagreement) -> bool:
    """A repeat that only Echoless still knows; Kafka says 45 (or appends, without an epoch)."""
    return case.echoless.original is not None and case.producer_id in case.kafka_partition.entries


def _is_in_wider_window(case: Disagreement) -> bool:
    if not _is_in_window(case) or case.echoless_partition.rules.window <= 5:
        return False
    window = case.echoless_partition.entries[case.producer_id].window
    return case.echoless.original not in window[-5:]


AFTERMATH = "aftermath of "
"""Prefix of the name where an earlier difference had parted the states of the producer."""

SNAPSHOTS_LOST = "state rebuilt after snapshots were lost"
EXPIRED_BY_RECORD_TIME = "expiry by the time of append"
IDS_AT_ONCE = "producer ids at once after a start"

OF_REQUESTS = (
    Difference("partition listed twice", _is_listed_twice),
    Difference("bytes left over behind a batch", _has_bytes_left_over),
)
OF_DECISIONS = (
    Difference("unknown id on a virgin partition", _starts_on_virgin_partition),
    Difference("unknown id on a used partition", _is_unknown_id),
    Difference("wider window", _is_in_wider_window),
    Difference("whole window after a restart", _is_in_window),
    Difference("repeat older than the window", _is_old_repeat),
)

NAMES = (
    *(difference.name for difference in OF_REQUESTS + OF_DECISIONS),
    SNAPSHOTS_LOST,
    EXPIRED_BY_RECORD_TIME,
    IDS_AT_ONCE,
)


def explain(case: Disagreement) -> str | None:
    """The name of the difference, or None when the table has none for it."""
    if name := _first(OF_REQUESTS, case):
        return name
    if case.parted_by is not None:
        return case.parted_by if case.parted_by in _STATE_LOSSES else AFTERMATH + case.parted_by
    return _first(OF_DECISIONS, case)


def _first(differences: Sequence[Difference], case: Disagreement) -> str | None:
    return next((found.name for found in differences if found.explains(case)), None)


_STATE_LOSSES = frozenset({SNAPSHOTS_LOST, EXPIRED_BY_RECORD_TIME})
"""Their effect shows only in later answers, which therefore count as the difference itself."""
