"""Judges one producer on one partition: its runs, in log order.

Within an epoch sequences are unwrapped: counted on past 2**31. All below `top` are stored, except for the holes. A
run at `top` is the expected case. One above leaves a hole; one below fills holes (it came late) or repeats stored
sequences.

Holes that stay are gaps, reported when the producer ends. Nothing is excused here: `audit.py` determines whether
damage hides the missing batch.

Pure: knows nothing of Spark and Arrow.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from echoless.pipeline.audit.findings import Finding, FindingKind, Severity
from echoless.pipeline.audit.runs import SequenceRun
from echoless.protocol.sequence import DISTANCE_MAX, SEQUENCE_MAX

HOLES_MAX: Final = 100_000
"""Limit on open holes of a producer and epoch; beyond it the oldest is reported."""


@dataclass(slots=True)
class Hole:
    """Unwrapped sequences from `start` to `end` (half-open) that were skipped."""

    start: int
    end: int
    after_offset: int
    """Last offset of the producer before the hole; -1 if there is none."""
    run: SequenceRun | None
    """The run that skipped them; None for sequences before the beginning of the log, which are no gap."""


@dataclass(slots=True)
class EpochHistory:
    """History of one epoch of one producer."""

    top: int
    """Next unwrapped sequence: one above the highest stored one."""
    holes: list[Hole] = field(default_factory=list)
    """Invariant: ascending and disjoint, all below `top`."""
    last_offset: int = -1
    last_timestamp: int = -1

    def take(self, run: SequenceRun) -> Iterator[Finding]:
        """Adds the next run; yields its faults."""
        start = self._unwrap(run.base_sequence)
        end = start + run.sequences
        if start > self.top:
            self.holes.append(Hole(self.top, start, self.last_offset, run))
            if len(self.holes) > HOLES_MAX:
                yield from _gap(self.holes.pop(0))
        elif start < self.top:
            yield from self._look_back(run, start, min(end, self.top))
        self.top = max(self.top, end)
        self.last_offset = run.last_offset
        self.last_timestamp = max(self.last_timestamp, run.last_timestamp)

    def finish(self) -> Iterator[Finding]:
        """Ends the epoch; yields the gaps."""
        for hole in self.holes:
            yield from _gap(hole)

    def _unwrap(self, sequence: int) -> int:
        """Returns the unwrapped `sequence` that is nearest to `top`."""
        ahead = (sequence - self.top) & SEQUENCE_MAX
        return self.top + (ahead if ahead < DISTANCE_MAX else ahead - SEQUENCE_MAX - 1)

    def _look_back(self, run: SequenceRun, start: int, end: int) -> Iterator[Finding]:
        """Judges sequences below `top`: each was stored before, or comes late."""
        position = start
        for filled_start, filled_end in self._fill(start, end):
            if position < filled_start:
                yield _finding(FindingKind.REPEAT, run, position, filled_start)
            yield _finding(FindingKind.REORDERING, run, filled_start, filled_end)
            position = filled_end
        if position < end:
            yield _finding(FindingKind.REPEAT, run, position, end)

    def _fill(self, start: int, end: int) -> list[tuple[int, int]]:
        """Fills the holes between two sequences; returns the filled ranges, ascending."""
        first = bisect_left(self.holes, start + 1, key=lambda hole: hole.end)
        last = first
        filled = []
        left = []
        while last < len(self.holes) and self.holes[last].start < end:
            hole = self.holes[last]
            low, high = max(start, hole.start), min(end, hole.end)
            filled.append((low, high))
            left += [
                Hole(a, b, hole.after_offset, hole.run)
                for a, b in ((hole.start, low), (high, hole.end))
                if a < b
            ]
            last += 1
        self.holes[first:last] = left
        return filled


@dataclass(slots=True)
class ProducerHistory:
    """History of all epochs of one producer on one partition."""

    log_begins_at_0: bool
    """Whether the log still has everything ever written to the partition."""
    expiration_ms: int
    """Idle time after which a broker may have forgotten the producer, so that it may start over."""
    epochs: dict[int, EpochHistory] = field(default_factory=dict)
    newest: int = -1

    def take(self, run: SequenceRun) -> Iterator[Finding]:
        """Adds the next run; yields its faults."""
        epoch = run.producer_epoch
        if epoch < self.newest:
            text = f"epoch {epoch} comes after {self.newest}"
            yield _about(run, FindingKind.EPOCH_REGRESSION, text, records=run.sequences)
        history = self.epochs.get(epoch)
        if history is not None and self._may_be_forgotten(run, history):
            text = f"starts over after {run.first_timestamp - history.last_timestamp} ms of silence"
            yield _about(run, FindingKind.FORGOTTEN, text, severity=Severity.NOTE)
            yield from history.finish()
            history = self.epochs[epoch] = EpochHistory(top=0)
        if history is None:
            history = self.epochs[epoch] = self._begin(run)
        self.newest = max(self.newest, epoch)
        yield from history.take(run)

    def finish(self) -> Iterator[Finding]:
        """Ends the producer; yields the gaps of all epochs."""
        for history in self.epochs.values():
            yield from history.finish()

    def _begin(self, run: SequenceRun) -> EpochHistory:
        """Begins an epoch, at sequence 0 unless its beginning may be deleted."""
        top = run.base_sequence
        if not self.log_begins_at_0 and self.newest < 0:
            return EpochHistory(top=top, holes=[Hole(top - DISTANCE_MAX, top, -1, None)])
        return EpochHistory(top=top, holes=[Hole(0, top, -1, run)] if top else [])

    def _may_be_forgotten(self, run: SequenceRun, history: EpochHistory) -> bool:
        silence_ms = run.first_timestamp - history.last_timestamp
        return run.base_sequence == 0 and silence_ms >= self.expiration_ms


def _gap(hole: Hole) -> Iterator[Finding]:
    if hole.run is not None:
        yield _finding(
            FindingKind.GAP, hole.run, hole.start, hole.end, after_offset=hole.after_offset
        )


_TEXTS: Final = {
    FindingKind.GAP: "sequences {} to {} are missing",
    FindingKind.REPEAT: "sequences {} to {} are stored again",
    FindingKind.REORDERING: "sequences {} to {} come late",
}


def _finding(
    kind: FindingKind, run: SequenceRun, start: int, end: int, after_offset: int | None = None
) -> Finding:
    """Makes a finding: unwrapped sequences `start` to `end` are missing, repeated or late."""
    base_sequence, last_sequence = start & SEQUENCE_MAX, (end - 1) & SEQUENCE_MAX
    finding = _about(run, kind, _TEXTS[kind].format(base_sequence, last_sequence))
    return finding._replace(
        base_sequence=base_sequence,
        last_sequence=last_sequence,
        records=end - start,
        after_offset=after_offset,
    )


def _about(
    run: SequenceRun,
    kind: FindingKind,
    text: str,
    *,
    severity: Severity = Severity.PROBLEM,
    records: int | None = None,
) -> Finding:
    return Finding(
        severity=severity,
        kind=kind,
        replica=run.replica,
        topic=run.topic,
        partition=run.partition,
        text=text,
        producer_id=run.producer_id,
        producer_epoch=run.producer_epoch,
        base_sequence=run.base_sequence,
        last_sequence=run.last_sequence,
        records=records,
        base_offset=run.base_offset,
        last_offset=run.last_offset,
        file=run.file,
        position=run.position,
        timestamp=run.first_timestamp,
    )
