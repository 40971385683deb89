"""What was decided about each batch and why: counted, logged where it matters, and remembered.

Partitions report every outcome here, so that `/metrics`, the log and `/decisions` cannot disagree.
Memory is bounded: two rings of `capacity` outcomes, one for appended batches and one for the
interesting rest, so that a busy producer's appends never push out the one refusal that somebody
is looking for. Only batches with a producer id are remembered; there is no decision about others.

A spurious 45 makes clients store records twice, so each one is logged with the window it was
judged by, and so is a repeat whose bytes differ.
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import islice
from typing import Final, NamedTuple

from broker.metrics import Metrics
from protocol.dedup import Duplicate, ProducerEntry, Reject
from protocol.errors import ErrorCode
from protocol.record_batch import BatchHeader

CAPACITY_DEFAULT: Final = 1000

APPEND: Final = "append"
DUPLICATE: Final = "duplicate"
DIVERGENT_DUPLICATE: Final = "divergent_duplicate"
REJECT: Final = "reject"

_NONE: Final = ErrorCode.NONE
_logger = logging.getLogger(__name__)

Window = tuple[tuple[int, int], ...]


class Outcome(NamedTuple):
    """One batch and what became of it."""

    number: int
    """Counts the outcomes of this broker since its start."""
    time_ms: int
    topic: str
    partition: int
    header: BatchHeader
    outcome: str
    """One of the four names above."""
    error_code: ErrorCode
    base_offset: int
    """Where the batch stands in the log; -1 when it was refused."""
    reason: str
    window: Window
    """First and last sequence of the remembered batches, oldest first, where it was refused."""


class Decisions:
    """The latest outcomes of one broker. Single owner: the event loop."""

    __slots__ = ("_appended", "_others", "metrics", "number")

    def __init__(self, metrics: Metrics, capacity: int = CAPACITY_DEFAULT) -> None:
        self.metrics = metrics
        self.number = 0
        """Outcomes remembered so far; the newest one's number."""
        self._appended: deque[Outcome] = deque(maxlen=capacity)
        self._others: deque[Outcome] = deque(maxlen=capacity)

    def of_partition(self, topic: str, partition: int) -> PartitionDecisions:
        """Where one partition reports its outcomes."""
        return PartitionDecisions(self, topic, partition)

    def remember(self, outcome: Outcome) -> None:
        """Keeps one outcome; the oldest of its ring goes when that is full."""
        (self._appended if outcome.outcome is APPEND else self._others).append(outcome)

    def latest(
        self, count: int, *, producer_id: int | None = None, topic: str | None = None
    ) -> list[Outcome]:
        """At most `count` outcomes, the newest first, of one producer or topic if asked for."""
        wanted = (
            outcome
            for outcome in sorted([*self._appended, *self._others], reverse=True)
            if producer_id is None or outcome.header.producer_id == producer_id
            if topic is None or outcome.topic == topic
        )
        return list(islice(wanted, count))


class PartitionDecisions:
    """One partition's way to report what became of each batch."""

    __slots__ = ("_decisions", "_metrics", "partition", "topic")

    def __init__(self, decisions: Decisions, topic: str, partition: int) -> None:
        self._decisions = decisions
        self._metrics = decisions.metrics
        self.topic = topic
        self.partition = partition

    def appended(self, now_ms: int, header: BatchHeader, base_offset: int) -> None:
        """Reports a batch that was written; also one without a producer id, for the counters."""
        metrics = self._metrics
        metrics.batches_appended_total += 1
        metrics.records_appended_total += header.record_count
        metrics.bytes_appended_total += header.size
        if header.producer_id >= 0:
            self._remember(now_ms, header, APPEND, base_offset=base_offset)

    def duplicate(self, now_ms: int, header: BatchHeader, decision: Duplicate) -> None:
        """Reports a repeat that is acknowledged with the offsets of the original."""
        self._metrics.duplicates_total += 1
        offset = decision.original.base_offset
        reason = f"stored before at offset {offset}"
        outcome = DUPLICATE
        if decision.divergent:
            outcome = DIVERGENT_DUPLICATE
            reason += ", with other bytes"
            self._metrics.divergent_duplicates_total += 1
            self._warn(header, reason, ())
        self._remember(now_ms, header, outcome, base_offset=offset, reason=reason)

    def rejected(
        self, now_ms: int, header: BatchHeader, decision: Reject, entry: ProducerEntry | None
    ) -> None:
        """Reports a refusal; `entry` is what the partition knew of the producer."""
        self._metrics.rejects_total[decision.code] += 1
        batches = () if entry is None else entry.batches
        window = tuple((batch.base_sequence, batch.last_sequence) for batch in batches)
        if decision.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._warn(header, decision.reason, window)
        self._remember(
            now_ms, header, REJECT, code=decision.code, reason=decision.reason, window=window
        )

    def _remember(
        self,
        now_ms: int,
        header: BatchHeader,
        outcome: str,
        *,
        code: ErrorCode = _NONE,
        base_offset: int = -1,
        reason: str = "",
        window: Window = (),
    ) -> None:
        decisions = self._decisions
        decisions.number = number = decisions.number + 1
        place = (number, now_ms, self.topic, self.partition, header)
        decisions.remember(Outcome(*place, outcome, code, base_offset, reason, window))

    def _warn(self, header: BatchHeader, reason: str, window: Window) -> None:
        _logger.warning(
            "%s-%d: producer %d epoch %d sequences %d to %d: %s; window %s",
            self.topic,
            self.partition,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            reason,
            list(window),
        )
