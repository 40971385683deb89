"""Judges the transactions of one producer on one partition: their parts, in log order.

A transaction begins with its first batch after a marker, and ends with the next marker, wherever the log was divided.
Without one it is open, or unended if a newer epoch begins: the coordinator ends what the older one has open before that.
A marker alone ends nothing: its partition had no record, or compaction has removed them. A deleted beginning changes nothing,
as the marker comes last. Nothing is excused here: `audit.py` determines whether damage, deletion or compaction hides the marker.

Pure: knows nothing of Spark and Arrow.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from echoless.pipeline.audit.findings import Finding, FindingKind, Severity
from echoless.pipeline.audit.transaction_parts import TransactionPart
from echoless.protocol.control_records import MarkerType


class TransactionOutcome(enum.StrEnum):
    """End of a transaction, as far as the log goes."""

    ABORTED = "aborted"
    COMMITTED = "committed"
    OPEN = "open"
    UNENDED = "unended"
    """A newer epoch of its producer has begun in it."""


class JudgedTransaction(NamedTuple):
    """A transaction that was aborted, is open or unended; or one that was committed by a marker of an older epoch."""

    replica: str
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    outcome: str
    base_offset: int
    last_offset: int
    """Last offset, that of the marker if there is one."""
    batches: int
    records: int
    first_timestamp: int
    last_timestamp: int
    marker_epoch: int | None
    file: str | None
    position: int | None


@dataclass(slots=True)
class TransactionHistory:
    """History of the transactions of one producer."""

    open: TransactionPart | None = None
    """Its batches since the last marker, as one part."""

    def take(self, part: TransactionPart) -> Iterator[JudgedTransaction]:
        """Adds the next part; yields the transaction that it ends, unless it is an ordinary committed one."""
        if self.open is not None and part.first_epoch > self.open.producer_epoch:
            begun = self.open._replace(last_offset=part.base_offset - 1)
            yield _judged(begun, TransactionOutcome.UNENDED, None)
            self.open = None
        if part.batches:
            self.open = part if self.open is None else _joined(self.open, part)
        if part.marker is None or self.open is None:
            return
        ended = self.open._replace(last_offset=part.last_offset)
        self.open = None
        marker_epoch = part.marker_epoch if part.marker_epoch is not None else -1
        is_aborted = part.marker == MarkerType.ABORT
        if is_aborted or marker_epoch < ended.producer_epoch:
            outcome = TransactionOutcome.ABORTED if is_aborted else TransactionOutcome.COMMITTED
            yield _judged(ended, outcome, marker_epoch)

    def finish(self) -> Iterator[JudgedTransaction]:
        """Ends the producer; yields its open transaction."""
        if self.open is not None:
            yield _judged(self.open, TransactionOutcome.OPEN, None)


def findings_about(transaction: JudgedTransaction) -> Iterator[Finding]:
    """Yields a note about an open transaction, and a problem if an older epoch has ended a newer one's."""
    if transaction.outcome == TransactionOutcome.OPEN:
        text = (
            f"{transaction.records} records of an open transaction: readers of committed records stop at offset "
            f"{transaction.base_offset}"
        )
        yield _about(transaction, FindingKind.OPEN_TRANSACTION, text, Severity.NOTE)
    if transaction.outcome == TransactionOutcome.UNENDED:
        text = "a newer epoch begins in the open transaction: the marker that ends it is missing"
        yield _about(transaction, FindingKind.LOST_MARKER, text, Severity.PROBLEM)
    epoch = transaction.marker_epoch
    if epoch is not None and epoch < transaction.producer_epoch:
        text = f"a marker of epoch {epoch} ends a transaction of epoch {transaction.producer_epoch}"
        yield _about(transaction, FindingKind.EPOCH_REGRESSION, text, Severity.PROBLEM)


def _joined(earlier: TransactionPart, later: TransactionPart) -> TransactionPart:
    return earlier._replace(
        producer_epoch=max(earlier.producer_epoch, later.producer_epoch),
        last_offset=later.last_offset,
        batches=earlier.batches + later.batches,
        records=earlier.records + later.records,
        last_timestamp=later.last_timestamp,
    )


def _judged(
    part: TransactionPart, outcome: TransactionOutcome, marker_epoch: int | None
) -> JudgedTransaction:
    return JudgedTransaction(
        replica=part.replica,
        topic=part.topic,
        partition=part.partition,
        producer_id=part.producer_id,
        producer_epoch=part.producer_epoch,
        outcome=outcome.value,
        base_offset=part.base_offset,
        last_offset=part.last_offset,
        batches=part.batches,
        records=part.records,
        first_timestamp=part.first_timestamp,
        last_timestamp=part.last_timestamp,
        marker_epoch=marker_epoch,
        file=part.file,
        position=part.position,
    )


def _about(
    transaction: JudgedTransaction, kind: FindingKind, text: str, severity: Severity
) -> Finding:
    return Finding(
        severity=severity,
        kind=kind,
        replica=transaction.replica,
        topic=transaction.topic,
        partition=transaction.partition,
        text=text,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        records=transaction.records,
        base_offset=transaction.base_offset,
        last_offset=transaction.last_offset,
        file=transaction.file,
        position=transaction.position,
        timestamp=transaction.first_timestamp,
    )
