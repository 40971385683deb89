"""Checking one partition: its segments batch by batch, and everything that is derived from them.

A damaged batch above the recovery point of a broker that did not stop cleanly is no problem: the
next start cuts it off, and it was never promised to be safe. The same before the recovery point, or
after a clean shutdown, is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from echoless.broker.config.loading import Config
from echoless.cli.data_files import ReadOnlyFile, offset_files
from echoless.cli.verification.epochs import EpochCheck
from echoless.cli.verification.findings import Findings
from echoless.cli.verification.indexes import IndexCheck
from echoless.cli.verification.producers import ProducerCheck
from echoless.cli.verification.transactions import TransactionCheck
from echoless.protocol.record_batch import BatchHeader, compute_crc
from echoless.storage import paths
from echoless.storage.batch_reader import (
    REPLAY_BYTES,
    PlacedHeader,
    read_headers,
    read_stored_marker,
)
from echoless.storage.file_system import CorruptLogError, StorageError
from echoless.storage.offset_order import breach
from echoless.storage.os_file_system import OsFileSystem
from echoless.storage.producers.snapshot import SnapshotError, read_snapshot

_FILES = OsFileSystem()


@dataclass(slots=True, frozen=True, kw_only=True)
class PromisedOffsets:
    """The data directory's promises about a partition's log."""

    recovery_point: int
    high_watermark: int
    log_start_offset: int
    was_clean: bool
    is_start_known: bool = True
    """Whether a checkpoint has the log start, so that no segment above it may be missing."""


@dataclass(slots=True, kw_only=True)
class PartitionSummary:
    """The amounts read from one partition."""

    partition: str
    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    log_start_offset: int = 0
    log_end_offset: int = 0
    producers: int = 0
    problems: int = 0


class PartitionCheck:
    """One partition under check; `run` does all of it."""

    def __init__(
        self,
        directory: str,
        promises: PromisedOffsets,
        findings: Findings,
        advance: Callable[[int], None],
    ) -> None:
        """`advance` is called with the number of bytes read."""
        self.directory = directory
        self.promises = promises
        self.findings = findings
        self.advance = advance
        self.summary = PartitionSummary(partition=paths.name_of(directory))
        self._segments = offset_files(directory, paths.LOG)
        self._expected = self._segments[0][0] if self._segments else 0
        """The end of the batches read so far: the next one begins there or, after a hole, above."""
        self._first_hole = range(0)
        self._holes = self._missing = 0
        self._thinned = self._removed = 0
        """Batches that have fewer records than offsets, and how many they lack."""
        self.summary.log_start_offset = max(self._expected, promises.log_start_offset)
        written_below = math.inf if promises.was_clean else promises.recovery_point
        self._epochs = EpochCheck(directory, self.summary.log_start_offset, written_below, findings)

    def run(self, config: Config) -> PartitionSummary:
        """Reads everything; problems are in `findings`, also what cannot be read at all."""
        if _FILES.exists(paths.join(self.directory, paths.REPLACEMENT)):
            return self._check_replacement()
        for name in _FILES.list_directory(self.directory):
            if paths.parse_swap_file(name) is not None:
                self.findings.note(
                    paths.join(self.directory, name),
                    "the next start puts this compacted segment in place of others; verify again after it",
                )
                return self.summary
        before = self.findings.problem_count
        self._producers = ProducerCheck(self.directory, self._expected, config, self.findings)
        self._transactions = TransactionCheck(self.directory, self._expected, self.findings)
        try:
            self._check_segments()
            self._check_ends()
        except StorageError as error:
            self.findings.problem(self.directory, error)
        self.summary.producers = self._producers.producer_count
        self.summary.problems = self.findings.problem_count - before
        return self.summary

    def _check_replacement(self) -> PartitionSummary:
        """Checks a replica that is about to start over: the rest of the old log promises nothing."""
        path = paths.join(self.directory, paths.REPLACEMENT)
        try:
            offset = read_snapshot(_FILES, path).offset
        except (SnapshotError, StorageError) as error:
            self.findings.problem(path, error)
            self.summary.problems += 1
        else:
            self.summary.log_start_offset = self.summary.log_end_offset = offset
            self.findings.note(path, f"the next start creates a new log at offset {offset}")
        return self.summary

    def _check_segments(self) -> None:
        start = self.promises.log_start_offset
        if self._segments and self._expected > start and self.promises.is_start_known:
            reason = f"the segments before it are missing: the log began at {start}"
            self.findings.problem(self._segments[0][1], reason)
        for index, (base_offset, path) in enumerate(self._segments):
            if not self._check_segment(base_offset, path):
                for _, skipped in self._segments[index + 1 :]:
                    self.findings.note(
                        skipped, "was not read, because the log before it is damaged"
                    )
                return

    def _check_segment(self, base_offset: int, path: str) -> bool:
        """Reads one segment; returns whether the next one can be expected to follow it."""
        self.summary.segments += 1
        if base_offset != self._expected:
            self.findings.problem(
                path, f"begins at {base_offset}, the log before it ends at {self._expected}"
            )
            self._distrust()
            self._expected = base_offset
        indexes = IndexCheck(self.directory, base_offset)
        self._transactions.begin_segment(base_offset)
        with ReadOnlyFile(path) as file:
            self.summary.size_bytes += file.size
            try:
                for placed in read_headers(file, 0, REPLAY_BYTES):
                    self._check_batch(file, placed, indexes)
                    self.advance(placed.header.size)
            except CorruptLogError as damage:
                return self._report_damage(damage, file.size)
        indexes.finish()
        self._report_indexes(indexes)
        self._transactions.finish_segment()
        return True

    def _check_batch(self, file: ReadOnlyFile, placed: PlacedHeader, indexes: IndexCheck) -> None:
        position, header = placed
        place = f"{file.path} at {position}"
        batch = file.read(position, header.size)
        if compute_crc(batch) != header.crc:
            damage = CorruptLogError(file.path, position, "the CRC does not match")
            if self._is_torn_tail():
                raise damage
            self.findings.problem(place, "the CRC does not match")
            self._distrust()
            indexes.give_up()
        elif reason := breach(header, self._expected, indexes.base_offset):
            self.findings.problem(place, reason)
            self._distrust()
        else:
            if header.base_offset > self._expected:
                self._see_hole(header.base_offset)
            marker = read_stored_marker(file, position, header, batch)
            self._count(header)
            offsets = header.last_offset_delta + 1
            if header.record_count > offsets:
                self.findings.problem(place, f"{header.record_count} records for {offsets} offsets")
            elif header.record_count < offsets:
                self._thinned += 1
                self._removed += offsets - header.record_count
            self._epochs.see(place, header)
            self._producers.see(place, header, marker)
            self._transactions.see(header, marker)
            indexes.see(position, header)
        self._expected = header.next_offset

    def _count(self, header: BatchHeader) -> None:
        self.summary.batches += 1
        self.summary.records += header.record_count

    def _see_hole(self, end: int) -> None:
        """Compaction leaves holes between batches; what the log lacks is noted, with figures."""
        self._first_hole = self._first_hole or range(self._expected, end)
        self._holes += 1
        self._missing += end - self._expected
        self._producers.skip_hole(self._expected, end)
        self._transactions.skip()

    def _distrust(self) -> None:
        """Damage hides batches: what follows proves nothing of them."""
        self._producers.trusted = False
        self._transactions.skip()

    def _is_torn_tail(self) -> bool:
        """Whether the next batch was never promised to be safe on disk."""
        return not self.promises.was_clean and self._expected >= self.promises.recovery_point

    def _report_damage(self, damage: CorruptLogError, size: int) -> bool:
        cut = f"; the next start cuts {size - damage.position} bytes off"
        if self._is_torn_tail():
            self.findings.note(damage.path, f"a write was cut short at {damage.position}{cut}")
        else:
            self.findings.problem(damage.path, damage)
            self._distrust()
        return False

    def _report_indexes(self, indexes: IndexCheck) -> None:
        for path, text in indexes.faults:
            if self.promises.was_clean:
                self.findings.problem(path, text)
            else:
                self.findings.note(path, f"{text}; the next start rebuilds it")

    def _check_ends(self) -> None:
        """Compares where the log ends with what was promised of it."""
        end = self._expected
        self.summary.log_end_offset = end
        if self._first_hole:
            self.findings.note(
                self.directory,
                f"lacks {self._missing} offsets between its batches, in {self._holes} places, the first from "
                f"{self._first_hole[0]} to {self._first_hole[-1]}: compaction removed them, or they are lost",
            )
        if self._thinned:
            self.findings.note(
                self.directory,
                f"lacks {self._removed} records in {self._thinned} batches: compaction removed them, or they are "
                f"lost",
            )
        for path in self._producers.finish(end):
            text = f"is at an offset after the end of the log, {end}"
            if self.promises.was_clean:
                self.findings.problem(path, text)
            else:
                self.findings.note(path, f"{text}; the next start removes it")
        for name, offset in (
            ("recovery point", self.promises.recovery_point),
            ("high watermark", self.promises.high_watermark),
            ("log start", self.promises.log_start_offset),
        ):
            if offset > end:
                self.findings.problem(
                    self.directory, f"the log ends at {end}, before its {name} {offset}"
                )
