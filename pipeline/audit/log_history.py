"""Judges one partition of one replica: its extents, in log order.

Offsets never overlap and never decrease, leader epochs never decrease, and every CRC is correct. Damage hides
offsets; the batches around it show which ones.

Compaction leaves holes between the batches of a file, so these are a note, one for each log; in a log that is known
not to be compacted they are a problem. Echoless's compaction keeps the last batch of each file, and the first offset in its name,
so the name of the next file continues the offsets: otherwise a file is missing, which is a problem. Its first batch may be gone.
Kafka's keeps no such batch, and its followers name a file by the first batch that they copy: a hole like any other.

What is missing below the start that the log has once it was read, retention may have deleted meanwhile: a note.

Bytes at the very end of a log that are not a whole batch were never promised to be on disk, unless they are below
the recovery point or the broker was stopped cleanly: a note, as in `echoless verify`.

Pure: knows nothing of Spark and Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from echoless.pipeline.audit.extents import FAULT_CRC, FAULT_DAMAGE, FAULT_RECORD_COUNT, Extent
from echoless.pipeline.audit.findings import Finding, FindingKind, Severity

_CAUSES: Final = {
    None: "compaction removed them, or they are lost",
    True: "compaction removed them",
    False: "they are lost, for nothing says that its topic is compacted (--compacted)",
}


@dataclass(slots=True)
class LogHistory:
    """History of one partition of one replica, extent by extent."""

    promised_offset: int
    """Offset below which everything was promised to be on disk."""
    is_compacted: bool | None = None
    """Whether compaction may have removed batches; None if it is not known."""
    files_meet: bool = True
    """Whether compaction leaves no hole between two files."""
    deleted_to: int = 0
    """Start of the log once it was read: what is missing below it may have been deleted meanwhile."""
    next_offset: int | None = None
    """End of the extents so far, below which no other may begin; None before the first one."""
    file: str | None = None
    """File of the last extent."""
    holes: int = 0
    missing: int = 0
    first_hole: Finding | None = None
    leader_epoch: int = -1
    damaged: list[Extent] = field(default_factory=list)
    """Damaged extents since the last sound one."""

    def take(self, extent: Extent) -> Iterator[Finding]:
        """Adds the next extent; yields the faults up to it."""
        if extent.fault in (FAULT_CRC, FAULT_DAMAGE):
            self.damaged.append(extent)
            return
        assert extent.base_offset is not None, "only damage has no offset"
        assert extent.last_offset is not None, "only damage has no offset"
        if self.damaged:
            yield from self._report_damage(extent.base_offset)
        elif extent.base_offset != (expected := self._expected(extent)):
            yield from self._misplaced(extent, extent.base_offset, expected)
        if extent.hole_start is not None and extent.hole_end is not None:
            hole = range(extent.hole_start, extent.hole_end)
            self._count_holes(extent, hole, extent.holes, extent.missing)
        if extent.fault == FAULT_RECORD_COUNT:
            spanned = extent.last_offset - extent.base_offset + 1
            count = str(extent.records) if extent.records > 0 else "a negative number of"
            text = f"{count} records for {spanned} offsets"
            yield _about(extent, FindingKind.RECORD_COUNT, text, records=extent.records)
        yield from self._check_epoch(extent)
        self.next_offset = max(self.next_offset or 0, extent.last_offset + 1)
        self.file = extent.file

    def finish(self) -> Iterator[Finding]:
        """Ends the log; yields its remaining faults."""
        if self.first_hole is not None:
            places = f" in {self.holes} places, first these" if self.holes > 1 else ""
            severity = Severity.PROBLEM if self.is_compacted is False else Severity.NOTE
            text = f"offsets are missing{places}: {_CAUSES[self.is_compacted]}"
            yield self.first_hole._replace(text=text, records=self.missing, severity=severity)
        if self.damaged:
            yield from self._report_end()

    def _expected(self, extent: Extent) -> int:
        """Returns the offset that should come next; `extent`, if it is the first, begins where its file's name says.

        Deletion moves the beginning of a log to the beginning of a file, or only that of what can be read. A cluster
        shows no names.
        """
        if self.next_offset is not None:
            return self.next_offset
        if extent.file is None:
            return extent.base_offset or 0
        return _first_offset(extent)

    def _report_end(self) -> Iterator[Finding]:
        """Reports damage after the last sound batch."""
        if self._expected(self.damaged[0]) >= self.promised_offset:
            size = sum(extent.bytes for extent in self.damaged)
            text = f"the last {size} bytes are not a batch: a write was cut short"
            yield _about(self.damaged[0], FindingKind.TORN_TAIL, text, severity=Severity.NOTE)
        else:
            yield from self._report_damage(None)

    def _check_epoch(self, extent: Extent) -> Iterator[Finding]:
        if extent.leader_epoch is not None and extent.leader_epoch < self.leader_epoch:
            text = f"leader epoch {extent.leader_epoch} comes after {self.leader_epoch}"
            yield _about(extent, FindingKind.LEADER_EPOCH_REGRESSION, text)
        self.leader_epoch = max(self.leader_epoch, extent.last_leader_epoch or 0)

    def _misplaced(self, extent: Extent, found: int, expected: int) -> Iterator[Finding]:
        if expected < found <= self.deleted_to:
            text = f"offsets {expected} to {found - 1} were deleted while the log was read"
            note = _about(extent, FindingKind.DELETED, text, severity=Severity.NOTE)
            yield note._replace(
                records=found - expected,
                base_offset=expected,
                last_offset=found - 1,
                position=None,
                timestamp=None,
            )
            return
        is_in_file = extent.file == self.file or _first_offset(extent) <= expected
        may_not_meet = not self.files_meet and self.is_compacted is not False
        if found > expected and (is_in_file or may_not_meet):
            self._count_holes(extent, range(expected, found), 1, found - expected)
            return
        kind = FindingKind.OFFSET_GAP if found > expected else FindingKind.OFFSET_REPEAT
        low, high = sorted((found, expected))
        text = f"offset {found}, expected {expected}"
        yield _about(extent, kind, text, records=high - low)._replace(
            base_offset=low, last_offset=high - 1
        )

    def _count_holes(self, extent: Extent, first: range, holes: int, missing: int) -> None:
        if self.first_hole is None:
            about = _about(extent, FindingKind.OFFSET_GAP, "", severity=Severity.NOTE)
            self.first_hole = about._replace(
                base_offset=first.start, last_offset=first.stop - 1, position=None, timestamp=None
            )
        self.holes += holes
        self.missing += missing

    def _report_damage(self, end_offset: int | None) -> Iterator[Finding]:
        """Reports damage since the last sound batch, which hides the offsets up to the next one."""
        start = self._expected(self.damaged[0])
        hidden = None if end_offset is None else end_offset - start
        for extent in self.damaged:
            kind = FindingKind.CRC if extent.fault == FAULT_CRC else FindingKind.DAMAGE
            text = extent.damage or "the CRC does not match"
            where = "to the end" if end_offset is None else f"offsets {start} to {end_offset - 1}"
            yield _about(
                extent, kind, f"{text} ({extent.bytes} bytes, {where})", records=hidden
            )._replace(
                base_offset=start, last_offset=None if end_offset is None else end_offset - 1
            )
        self.damaged.clear()


def _first_offset(extent: Extent) -> int:
    """Returns the offset in the name of the extent's file."""
    return int(PurePath(extent.file).stem) if extent.file is not None else 0


def _about(
    extent: Extent,
    kind: FindingKind,
    text: str,
    *,
    severity: Severity = Severity.PROBLEM,
    records: int | None = None,
) -> Finding:
    return Finding(
        severity=severity,
        kind=kind,
        replica=extent.replica,
        topic=extent.topic,
        partition=extent.partition,
        text=text,
        records=records,
        base_offset=extent.base_offset,
        last_offset=extent.last_offset,
        file=extent.file,
        position=extent.position,
        timestamp=extent.first_timestamp,
    )
