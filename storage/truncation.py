"""Truncating a log, durably, as a follower does whose log diverges from its leader's.

0. The flush that was pending has ended (`pending_change.py`).
1. Remove the old segments that were given up.
2. Lower the recovery point and the log start on disk. Crash: more is scanned than needed.
3. Remove the snapshots above the cut, durably. Crash: an older one is loaded, and more replayed.
4. Remove the segments above the cut, newest first. Crash: the log ends between two of them.
5. Cut the segment that holds the cut, and sync it. Crash: the log ends before the cut or after it.
6. Rebuild the producer state, in memory.

The leader epochs are cut in memory by the owner. Crash: opening the log cuts them to its recovery
point, and reads the rest from the batches.

Called by `log.py`, in any one thread (`pending_change.py`). Knows nothing of what the producers did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from echoless.storage.file_system import FileSystem
from echoless.storage.kept_offsets import KeptOffsets
from echoless.storage.pending_segment_removal import PendingSegmentRemoval
from echoless.storage.producers.replay import rebuild, remove_snapshots, snapshot_offsets
from echoless.storage.producers.state import ProducerStates
from echoless.storage.segment import Segment
from echoless.storage.segments import Segments


@dataclass(slots=True, kw_only=True, eq=False)
class Truncation:
    """One cut, with everything in it that the owner leaves alone until it is finished."""

    directory: str
    offset: int
    """The last batch to keep ends here."""
    segments: Segments
    """The segments that stay; the last of them holds the cut."""
    doomed: Sequence[Segment]
    """The segments above the cut, newest first."""
    removal: PendingSegmentRemoval | None
    lowered: KeptOffsets | None
    """The offsets on disk, if any of them is above the cut."""
    producers: ProducerStates
    """Empty; becomes the state as of `offset`."""
    now_ms: int
    fs: FileSystem

    def carry_out(self) -> ProducerStates:
        """Does the steps. Raises `StorageError`, half done."""
        if self.removal is not None:
            self.removal.run()
        if self.lowered is not None:
            self.lowered.lower(self.offset)
        self._remove_snapshots_above()
        for segment in self.doomed:
            segment.remove()
        self.segments.active.truncate_to(self.offset)
        self.fs.sync_directory(self.directory)
        rebuild(self.producers, self.fs, self.directory, self.segments, self.offset, self.now_ms)
        return self.producers

    def discard(self) -> None:
        """Closes what is left of the segments above the cut, which the log does not have any more."""
        for segment in self.doomed:
            segment.close()

    def _remove_snapshots_above(self) -> None:
        above = [o for o in snapshot_offsets(self.fs, self.directory) if o > self.offset]
        remove_snapshots(self.fs, self.directory, reversed(above))
        self.fs.sync_directory(self.directory)
