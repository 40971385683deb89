"""The plan of a pass over one log: which segments it cleans, up to where, and how urgently.

A log has a clean part, below the offset that earlier passes have reached, and a dirty part after it. A pass
reads the keys of the dirty part, and rewrites both. It ends where the first of these begins: the active
segment, what is not committed, what recovery may scan (the recovery point on disk), what is too young
(`min.compaction.lag.ms`).

Invariant: nothing is cleaned above the high watermark: a record that is cut off must not have removed an
older one (hazard H8).
Invariant: nothing is cleaned above the recovery point on disk: recovery reads leader epochs from the batches
above it, and a batch that is gone would move the start of its epoch (hazard H9).

Pure. Called by `compaction.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_DAY_MS = 24 * 60 * 60 * 1000


class CompactionRules(NamedTuple):
    """A compacted topic's settings. Times in ms."""

    min_dirty_ratio: float = 0.5
    """A log is cleaned once more than this part of it is dirty."""
    min_lag_ms: int = 0
    """A segment whose newest record is younger stays as it is, and all after it."""
    max_lag_ms: int | None = None
    """A log whose oldest dirty record is older is cleaned whatever its ratio. None: never."""
    delete_retention_ms: int = _DAY_MS
    """Time that a tombstone stays after the first pass that has met it."""

    @property
    def has_lags(self) -> bool:
        """Whether time alone makes segments old enough to be cleaned, or due."""
        return self.min_lag_ms > 0 or self.max_lag_ms is not None


class SegmentFacts(NamedTuple):
    """A closed segment, as far as planning needs it."""

    base_offset: int
    next_offset: int
    size: int
    first_ms: int
    """The first batch's timestamp; that of the file if records have none."""
    newest_ms: int
    """The same for the newest record."""


class SourceSegment(NamedTuple):
    """A closed segment, as far as a pass over it needs it; can be pickled."""

    base_offset: int
    next_offset: int
    size: int
    path: str


class Pass(NamedTuple):
    """The range of one pass over a log."""

    dirty_start: int
    """The offset from which keys are read."""
    end_offset: int
    """The end of the last segment that is cleaned."""
    clean_bytes: int
    dirty_bytes: int
    is_due: bool
    """Whether it should be cleaned now."""

    @property
    def dirty_ratio(self) -> float:
        """The dirty part of the log that can be cleaned, from 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def first_dirty_offset(cleaned_to: int, log_start_offset: int, log_end_offset: int) -> int:
    """The beginning of the dirty part: the log start if the offset reached before is not in the log."""
    return cleaned_to if log_start_offset <= cleaned_to <= log_end_offset else log_start_offset


def cleanable(
    segments: Sequence[SegmentFacts], limit: int, rules: CompactionRules, now_ms: int
) -> list[SegmentFacts]:
    """The closed segments, oldest first, that end at or below `limit` and are old enough."""
    found: list[SegmentFacts] = []
    for segment in segments:
        is_young = rules.min_lag_ms > 0 and segment.newest_ms > now_ms - rules.min_lag_ms
        if segment.next_offset > limit or is_young:
            break
        found.append(segment)
    return found


def plan(
    segments: Sequence[SegmentFacts],
    dirty_start: int,
    rules: CompactionRules,
    now_ms: int,
    horizon_ms: int | None = None,
) -> Pass | None:
    """The pass over `segments`, which can be cleaned; None if there is nothing to gain.

    `horizon_ms`: when the first tombstone that earlier passes have met may go; None: none is known.
    """
    if not segments:
        return None
    dirty = [segment for segment in segments if segment.next_offset > dirty_start]
    dirty_bytes = sum(segment.size for segment in dirty)
    clean_bytes = sum(segment.size for segment in segments) - dirty_bytes
    found = Pass(dirty_start, segments[-1].next_offset, clean_bytes, dirty_bytes, is_due=False)
    has_expired = horizon_ms is not None and horizon_ms <= now_ms
    if not dirty and not has_expired:
        return None
    is_overdue = (
        bool(dirty)
        and rules.max_lag_ms is not None
        and dirty[0].first_ms < now_ms - rules.max_lag_ms
    )
    is_dirty = found.dirty_ratio > rules.min_dirty_ratio
    return found._replace(is_due=is_dirty or is_overdue or has_expired)
