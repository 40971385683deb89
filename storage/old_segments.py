"""Segments that retention and DeleteRecords have given up, until their files are removed.

Invariant: no segment is removed above the log start on disk, so a start notices missing ones.
Invariant: once segments were deleted, the producer state as of the first base offset is on disk.

Called by `log.py`, in the owner's thread; `pending_segment_removal.py` removes the files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from echoless.storage.durability import Durability
from echoless.storage.file_system import FileSystem
from echoless.storage.kept_offsets import KeptOffsets
from echoless.storage.leader_epochs import LeaderEpochs
from echoless.storage.producers.replay import snapshot_offsets
from echoless.storage.retention import Reason, snapshots_to_remove
from echoless.storage.segments import Segments

if TYPE_CHECKING:
    from echoless.storage.pending_segment_removal import PendingSegmentRemoval

SNAPSHOTS_AT_ONCE_MAX: Final = 1000
"""The rest goes with the next removal: whoever changes the log waits for one that is running."""


class OldSegments:
    """The oldest segments of one log that may be removed, and the producer snapshots that go with them."""

    __slots__ = (
        "_directory",
        "_durability",
        "_fs",
        "_kept",
        "_leader_epochs",
        "_reasons",
        "_segments",
        "has_left_snapshots",
        "pending",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        *,
        segments: Segments,
        durability: Durability,
        leader_epochs: LeaderEpochs,
        kept: KeptOffsets,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._segments = segments
        self._durability = durability
        self._leader_epochs = leader_epochs
        self._kept = kept
        self._reasons: dict[int, Reason] = {}
        """The reasons, by base offset, for which segments were given up, until they are removed."""
        self.pending: PendingSegmentRemoval | None = None
        """The removal under way, until it is done."""
        self.has_left_snapshots = False
        """Whether there are needless producer snapshots, those of segments that compaction has merged, say."""

    def retire(self, reasons: Sequence[Reason], high_watermark: int | None) -> int:
        """Gives up as many as possible of the segments that `reasons` names, oldest first.

        Returns the base offset of the first segment that stays.
        """
        count = self._count_removable(len(reasons), high_watermark)
        bases = self._segments.base_offsets
        for base, reason in zip(bases[:count], reasons, strict=False):
            self._reasons.setdefault(base, reason)
        return bases[count]

    def forget_reasons(self) -> None:
        """Starts over: the log has been replaced."""
        self._reasons.clear()

    def start_removal(
        self, log_start_offset: int, high_watermark: int | None
    ) -> PendingSegmentRemoval | None:
        """Takes the segments below the log start on disk out of the log; see `Log.start_removal`."""
        if self.pending is not None:
            return self.pending
        limit = min(log_start_offset, self._kept.log_start)
        count = 0
        if self._segments.first.next_offset <= limit:
            doomed = sum(segment.next_offset <= limit for segment in self._segments.closed)
            count = self._count_removable(doomed, high_watermark)
        if count or self.has_left_snapshots:
            pending = self._take_out(count, log_start_offset)
            if count or pending.snapshots:
                self.pending = pending
        return self.pending

    def _take_out(self, count: int, log_start_offset: int) -> PendingSegmentRemoval:
        from echoless.storage.pending_segment_removal import (  # noqa: PLC0415 - the first segment that goes
            PendingSegmentRemoval,
        )

        segments = deque(self._segments.pop_first() for _ in range(count))
        first_offset = self._segments.first.base_offset
        if count:
            self._leader_epochs.truncate_from_start(first_offset)
        snapshots = self.needless_snapshots(log_start_offset)
        self.has_left_snapshots = len(snapshots) > SNAPSHOTS_AT_ONCE_MAX
        return PendingSegmentRemoval(
            directory=self._directory,
            segments=segments,
            reasons=[
                self._reasons.pop(segment.base_offset, Reason.LOG_START) for segment in segments
            ],
            snapshots=snapshots[:SNAPSHOTS_AT_ONCE_MAX],
            first_offset=first_offset,
            log_start_offset=log_start_offset,
            _fs=self._fs,
        )

    def finish_removal(self, pending: PendingSegmentRemoval) -> None:
        """Notes what `pending.run` did, or that it has to run again."""
        if pending is self.pending and pending.is_done:
            self.pending = None

    def complete_removal(self) -> None:
        """Returns when no removal is pending."""
        if self.pending is not None:
            self.pending.run()
            self.finish_removal(self.pending)

    def cancel_removal(self) -> None:
        """Returns when no removal is running; the next start finds what is left. From any thread."""
        if self.pending is not None:
            self.pending.cancel()

    def needless_snapshots(self, log_start_offset: int) -> list[int]:
        """Offsets of the producer snapshots that no recovery can need."""
        return snapshots_to_remove(
            snapshot_offsets(self._fs, self._directory),
            self._segments.base_offsets,
            log_start_offset,
        )

    def _count_removable(self, expired: int, high_watermark: int | None) -> int:
        """The number of the `expired` oldest segments that can go now."""
        limit = self._durability.recovery_point
        if high_watermark is not None:
            limit = min(limit, high_watermark)
        candidates = self._segments.base_offsets[1 : expired + 1]
        if not candidates or candidates[0] > limit:
            return 0
        saved = set(snapshot_offsets(self._fs, self._directory))
        saved -= self._durability.unwritten_snapshots
        counts = range(len(candidates), 0, -1)
        return next(
            (c for c in counts if candidates[c - 1] in saved and candidates[c - 1] <= limit), 0
        )
