"""Removing old segments, without the owner's thread waiting for the disk.

    pending = log.start_removal()    owner: from now on nothing reads them; touches no file
    pending.run()                    any one thread: removes the files
    log.finish_removal(pending)      owner: notes what was done

The segments are below the log start on disk, so a start accepts a log with some of them, or none:
1. Remove the segments, oldest first, durably. Crash: the log begins with the first one left; opening
   it cuts the leader epochs to that, and retention continues from there.
2. Remove the producer snapshots that nothing needs any more. Crash: done the next time. After a pass of
   compaction this is the only step.

The owner completes a pending removal before it truncates the log, and cancels it before it closes or
abandons the log; the next start finds what a cancelled one has left. Called by `old_segments.py`.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass, field

from echoless.storage.file_system import FileSystem
from echoless.storage.producers.replay import remove_snapshots
from echoless.storage.retention import Reason
from echoless.storage.segment import Segment

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class PendingSegmentRemoval:
    """Segments that are no longer part of their log, and are still on disk."""

    directory: str
    segments: deque[Segment]
    reasons: Collection[Reason]
    """The reason for each of them."""
    snapshots: Collection[int]
    """Offsets of the snapshots that nothing needs once the segments are gone."""
    first_offset: int
    """The base offset of the first segment that stays."""
    log_start_offset: int
    _fs: FileSystem
    _lock: threading.Lock = field(default_factory=threading.Lock)
    is_done: bool = False
    is_cancelled: bool = False

    def run(self) -> None:
        """Does the work, or what an earlier attempt has left of it, unless cancelled.

        Raises `StorageError`.
        """
        with self._lock:
            if self.is_cancelled or self.is_done:
                return
            size = sum(segment.size for segment in self.segments)
            while self.segments:
                self.segments[0].remove()
                self.segments.popleft()
            if self.reasons:
                self._fs.sync_directory(self.directory)
            remove_snapshots(self._fs, self.directory, self.snapshots)
            self.is_done = True
        self._log(size)

    def _log(self, size: int) -> None:
        if not self.reasons:
            logger.info(
                "%s: removed %d producer snapshots that nothing needs since segments were merged",
                self.directory,
                len(self.snapshots),
            )
            return
        reasons = Counter(self.reasons)
        logger.info(
            "%s: removed %d segments with %d bytes (%s) and %d producer snapshots; the log starts at "
            "offset %d, its first segment at %d",
            self.directory,
            len(self.reasons),
            size,
            ", ".join(f"{count} by {reason}" for reason, count in reasons.items()),
            len(self.snapshots),
            self.log_start_offset,
            self.first_offset,
        )

    def cancel(self) -> None:
        """Waits for `run` if it is running, and keeps it from starting otherwise."""
        with self._lock:
            self.is_cancelled = True
            for segment in self.segments:
                segment.close()
