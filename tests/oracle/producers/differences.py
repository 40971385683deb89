"""The allowed differences, each by its name in `docs/differences.md`.

Both models have judged the batch (`reference.py`), so both answers are predicted exactly; this file only
names the reason. The first that applies counts. A disagreement of the
models that nothing here explains is a failure, and so is an answer that its model did not predict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.oracle.producers.reference import (
    DUPLICATE,
    OUT_OF_ORDER,
    UNKNOWN_PRODUCER,
    Partition,
    Verdict,
)

LISTED_TWICE = "partition listed twice"
LEFT_OVER = "bytes left over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A flaw that Echoless refuses with its own code, before the decision."""

    name: str
    flaw: str
    error: int
    kafka_error: int | None
    """Kafka's answer; None if it judges the batch like any other."""
    tells_log_start: bool = False


REFUSALS = {
    refusal.flaw: refusal
    for refusal in (
        Refusal(name="partition listed twice", flaw=LISTED_TWICE, error=42, kafka_error=None),
        Refusal(name="bytes left over behind a batch", flaw=LEFT_OVER, error=2, kafka_error=None),
        Refusal(
            name="log-append-time bit of a client",
            flaw="log-append-time bit",
            error=32,
            kafka_error=None,
            tells_log_start=True,
        ),
        Refusal(
            name="unknown codec",
            flaw="unknown codec",
            error=76,
            kafka_error=-1,
            tells_log_start=True,
        ),
        Refusal(
            name="records that do not decompress",
            flaw="undecodable",
            error=87,
            kafka_error=-1,
            tells_log_start=True,
        ),
        Refusal(name="batch shorter than its header", flaw="headless", error=2, kafka_error=-1),
        Refusal(name="length beyond all bytes", flaw="endless", error=87, kafka_error=-1),
    )
}

BAD_FIELD = "bad field"
"""A flaw inside a record whose length is right."""
UNREAD_FIELDS = "fields inside records, but for a first batch"
"""Echoless reads every field only of batches with sequence 0, the framing of all."""

POISON = frozenset({"wrong length", "headless", "endless", "wrong magic", "unknown codec"})
"""Flaws over which Kafka may refuse the whole request, the other partitions included."""
POISONED = "neighbour of a damaged batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """One batch on which the two models differ."""

    kafka: Verdict
    echoless: Verdict
    kafka_partition: Partition
    """The partition before the batch."""
    echoless_partition: Partition
    producer_id: int
    parted_by: str | None
    """The difference that made the two states of this producer unequal earlier, if one did."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One row of the table. Where one side appends and the other does not, the states part."""

    name: str
    explains: Callable[[Disagreement], bool]


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


def _has_other_records(case: Disagreement) -> bool:
    """A batch that only Echoless remembers, as after a restart, is one too; Kafka says 45 then."""
    is_known = case.producer_id in case.echoless_partition.entries
    return is_known and not case.kafka.appends and case.echoless.error == UNKNOWN_PRODUCER


AFTERMATH = "aftermath of "
"""Prefix of the name where an earlier difference had parted the states of the producer."""

SNAPSHOTS_LOST = "state rebuilt after snapshots were lost"
EXPIRED_BY_RECORD_TIME = "expiry by the time of append"
IDS_AT_ONCE = "producer ids at once after a start"

DIFFERENCES = (
    Difference("the same numbers, other records", _has_other_records),
    Difference("unknown id on a virgin partition", _starts_on_virgin_partition),
    Difference("unknown id on a used partition", _is_unknown_id),
    Difference("wider window", _is_in_wider_window),
    Difference("whole window after a restart", _is_in_window),
    Difference("repeat older than the window", _is_old_repeat),
)

NAMES = (
    *(refusal.name for refusal in REFUSALS.values()),
    UNREAD_FIELDS,
    POISONED,
    *(difference.name for difference in DIFFERENCES),
    SNAPSHOTS_LOST,
    EXPIRED_BY_RECORD_TIME,
    IDS_AT_ONCE,
)


def explain(case: Disagreement) -> str | None:
    """The name of the difference, or None when the table has none for it."""
    if case.parted_by is not None:
        return case.parted_by if case.parted_by in _STATE_LOSSES else AFTERMATH + case.parted_by
    return next((found.name for found in DIFFERENCES if found.explains(case)), None)


_STATE_LOSSES = frozenset({SNAPSHOTS_LOST, EXPIRED_BY_RECORD_TIME})
"""Their effect shows only in later answers, which therefore count as the difference itself."""
