"""The compaction of one log: what there is to clean, passes, and the swaps that put their segments in place.

    found = log.compaction.find_pass(...)       owner
    cleaning = log.compaction.start(found, ...) owner: notes the segments, touches no file
    cleaning.steps()                            any one thread, a step at a time
    swap = log.compaction.start_swap(cleaned)   owner: None while a flush works on these segments
    swap.run()                                  any one thread, while the owner reads and appends
    log.compaction.finish_swap(swap)            owner: readers see the new segment
    log.compaction.note_pass(cleaning.report)   owner: the next pass begins where this one ended

A cut or a replacement of the log makes a pass stale: nothing that it wrote is put in place any more. Old
segments may go meanwhile, which makes it stale as well.

Invariant: a swap replaces exactly the segments that were read, unchanged since.

Called by `log.py` and the broker's cleaner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from echoless.protocol.record_batch import HEADER_SIZE, read_header
from echoless.storage import paths
from echoless.storage.compaction.plan import (
    Pass,
    SegmentFacts,
    SourceSegment,
    cleanable,
    first_dirty_offset,
    plan,
)
from echoless.storage.durability import Durability
from echoless.storage.file_system import FileSystem
from echoless.storage.kept_offsets import KeptOffsets
from echoless.storage.log_config import LogConfig
from echoless.storage.segment import Segment
from echoless.storage.segments import Segments

if TYPE_CHECKING:
    from echoless.storage.compaction.cleaning import Cleaning, CleaningReport
    from echoless.storage.compaction.swap import Cleaned, PendingSwap


class StalePassError(Exception):
    """The log was cut, or lost segments, since the pass began: what it wrote is of no use."""


class Uncleanable(NamedTuple):
    """A partition that could not be cleaned."""

    topic: str
    partition: int
    reason: str
    delay_s: float
    """Pause between this attempt and the next."""
    retry_s: float
    """Earliest time of the next attempt, by the event loop's clock."""


class Compaction:
    """The compaction of one log. Single owner, as with the log."""

    __slots__ = (
        "_directory",
        "_durability",
        "_fs",
        "_generation",
        "_kept",
        "_pass_base",
        "_pass_generation",
        "_segments",
        "_swap",
        "cleaned_to",
        "dirty_ratio",
        "horizon_ms",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        *,
        segments: Segments,
        durability: Durability,
        kept: KeptOffsets,
        cleaned_to: int,
    ) -> None:
        self.cleaned_to = cleaned_to
        """The offset below which the keys of all records have been read."""
        self.horizon_ms: int | None = None
        """The time from which on a tombstone that the last pass has met may go; None: it has met none."""
        self.dirty_ratio = 0.0
        """The dirty part of what can be cleaned, when someone last looked."""
        self._fs = fs
        self._directory = directory
        self._segments = segments
        self._durability = durability
        self._kept = kept
        self._swap: PendingSwap | None = None
        self._generation = 0
        """Counts what makes a pass stale."""
        self._pass_generation = -1
        self._pass_base = -1
        """The base offset of the first segment when the pass began."""

    def look(
        self,
        config: LogConfig,
        *,
        log_start_offset: int,
        log_end_offset: int,
        limit: int,
        now_ms: int,
    ) -> Pass | None:
        """Returns `find_pass`, and notes the dirty ratio."""
        found = self.find_pass(
            config,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            limit=limit,
            now_ms=now_ms,
        )
        self.dirty_ratio = 0.0 if found is None else found.dirty_ratio
        return found

    def find_pass(
        self,
        config: LogConfig,
        *,
        log_start_offset: int,
        log_end_offset: int,
        limit: int,
        now_ms: int,
    ) -> Pass | None:
        """Plans a pass; None if there is nothing to clean. `limit`: below it everything is committed.

        `now_ms` is the wall-clock time. Raises `StorageError` if a segment cannot be read.
        """
        start = first_dirty_offset(self.cleaned_to, log_start_offset, log_end_offset)
        if not self._may_gain(start, now_ms):
            return None
        limit = min(limit, self._durability.recovery_point, self._kept.recovery_point)
        rules = config.compaction_rules
        needs_newest, needs_first = rules.min_lag_ms > 0, rules.max_lag_ms is not None
        facts = [
            _facts(self._fs, segment, needs_first=needs_first, needs_newest=needs_newest)
            for segment in self._segments.closed
            if segment.next_offset <= limit
        ]
        found = cleanable(facts, limit, rules, now_ms)
        unwritten = self._durability.unwritten_snapshots
        while found and not self._has_snapshot(found[-1].next_offset, unwritten):
            found.pop()
        return plan(found, start, rules, now_ms, self.horizon_ms)

    @property
    def has_dirty_segments(self) -> bool:
        """Whether there are closed segments that no pass has read."""
        closed = self._segments.closed
        return bool(closed) and closed[-1].next_offset > self.cleaned_to

    def _may_gain(self, dirty_start: int, now_ms: int) -> bool:
        closed = self._segments.closed
        if not closed:
            return False
        has_expired = self.horizon_ms is not None and self.horizon_ms <= now_ms
        return has_expired or closed[-1].next_offset > dirty_start

    def _has_snapshot(self, offset: int, unwritten: frozenset[int]) -> bool:
        path = paths.offset_file(self._directory, offset, paths.SNAPSHOT)
        return offset not in unwritten and self._fs.exists(path)

    def start(
        self, found: Pass, config: LogConfig, *, map_bytes_max: int, now_ms: int, steady_ms: int
    ) -> Cleaning:
        """Begins the pass; `steady_ms` is the data directory's clock, by which producers expire."""
        from echoless.storage.compaction.cleaning import (  # noqa: PLC0415 - few topics are compacted
            Cleaning,
            CleaningJob,
        )
        from echoless.storage.compaction.transactions import aborts_behind  # noqa: PLC0415

        self._pass_generation = self._generation
        self._pass_base = self._segments.first.base_offset
        sources = [
            SourceSegment(s.base_offset, s.next_offset, s.size, s.file.path)
            for s in self._segments.closed
            if s.next_offset <= found.end_offset
        ]
        job = CleaningJob(
            directory=self._directory,
            sources=tuple(sources),
            range_=found,
            config=config,
            later_aborts=tuple(
                aborts_behind(found.end_offset, self._segments.aborting_from(found.end_offset))
            ),
            map_bytes_max=map_bytes_max,
            now_ms=now_ms,
            steady_ms=steady_ms,
        )
        return Cleaning(self._fs, job)

    def start_swap(self, cleaned: Cleaned, config: LogConfig) -> PendingSwap | None:
        """Returns the work that puts the segment in place; None: try again when the flush has ended.

        Raises `StalePassError`.
        """
        from echoless.storage.compaction.swap import PendingSwap  # noqa: PLC0415 - see `start`

        assert self._swap is None, "a swap is under way"
        sources = self._fresh(cleaned.sources)
        if not self._durability.spare(sources):
            return None
        self._swap = PendingSwap(self._fs, self._directory, cleaned, sources, config)
        return self._swap

    def _fresh(self, sources: Sequence[SourceSegment]) -> tuple[Segment, ...]:
        """The log's segments that were read. Raises `StalePassError` unless they are unchanged since the pass began."""
        closed = {(s.base_offset, s.next_offset, s.size): s for s in self._segments.closed}
        found = [closed.get((s.base_offset, s.next_offset, s.size)) for s in sources]
        left = tuple(segment for segment in found if segment is not None)
        if self._pass_generation != self._generation or len(left) < len(found):
            raise StalePassError(self._directory)
        return left

    @property
    def is_stale(self) -> bool:
        """Whether the log was cut, or has lost its oldest segments, since the pass began."""
        is_cut = self._pass_generation != self._generation
        return is_cut or self._segments.first.base_offset != self._pass_base

    def finish_swap(self, swap: PendingSwap) -> None:
        """Has readers see the new segment, if it is in place, and closes the old ones."""
        if swap is not self._swap:
            return
        self._swap = None
        self._durability.spare_none()
        if swap.segment is None:
            return
        self._segments.replace(swap.sources, swap.segment)
        for source in swap.sources:
            source.close()

    def note_pass(self, report: CleaningReport) -> None:
        """Notes how far the pass has come, unless it is stale."""
        if self._pass_generation == self._generation:
            self.cleaned_to = report.cleaned_to
            self.horizon_ms = report.horizon_ms

    @property
    def is_swapping(self) -> bool:
        return self._swap is not None

    def end_swap(self) -> PendingSwap | None:
        """Returns when no swap is under way: one that runs is finished, which takes some milliseconds.

        The log is about to be changed or closed, so passes are stale from now on. Returns the swap that
        was ended, if any: it may have failed.
        """
        self._generation += 1
        swap = self._swap
        if swap is not None:
            swap.cancel()
            self.finish_swap(swap)
        return swap

    def abandon_swap(self) -> None:
        """Returns when no swap is running; the log is about to be removed. From any thread."""
        swap = self._swap
        if swap is not None:
            swap.cancel()
            swap.discard()

    def end_at(self, offset: int) -> None:
        """Follows a cut of the log: what is appended from there on is dirty."""
        self.cleaned_to = min(self.cleaned_to, offset)

    def begin_at(self, offset: int) -> None:
        """Follows the replacement of the log by an empty one."""
        self.cleaned_to = offset

    def remove_leftovers(self) -> None:
        """Removes what a stale pass has written, or one whose process has died; in any one thread."""
        from echoless.storage.compaction.swap import remove_cleaned  # noqa: PLC0415 - see `start`

        remove_cleaned(self._fs, self._directory)


def _facts(
    fs: FileSystem, segment: Segment, *, needs_first: bool, needs_newest: bool
) -> SegmentFacts:
    first_ms = newest_ms = 0
    if needs_first:
        header = read_header(segment.file.read(0, HEADER_SIZE))
        first_ms = _or_modified(fs, segment, lambda: header.max_timestamp)
    if needs_newest:
        newest_ms = _or_modified(fs, segment, lambda: segment.indexes.top[0])
    return SegmentFacts(segment.base_offset, segment.next_offset, segment.size, first_ms, newest_ms)


def _or_modified(fs: FileSystem, segment: Segment, timestamp_of: Callable[[], int]) -> int:
    """The timestamp; if records have none, the time of the last write to the file."""
    timestamp = timestamp_of()
    return timestamp if timestamp >= 0 else fs.modified_ms(segment.file.path)
