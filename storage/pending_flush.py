"""A flush in three steps, so that the disk is waited for outside the owner's thread.

    pending = log.start_flush()     owner: notes what is to be synced, touches no file
    pending.run()                   any one thread: syncs, while the owner appends on
    log.finish_flush(pending)       owner: the recovery point moves

What `run` writes, and what opening the log does after a crash at each step:
1. Sync the segments that reach beyond the recovery point. Crash: they are scanned.
2. Write and sync the indexes of closed segments. Crash: they are scanned, the indexes rebuilt.
3. Write the producer snapshots of the rolls, each atomically. Crash: older ones and a replay.
4. Write the leader epochs, where the file lacks some. Crash: read from the batches above the
   recovery point.
5. Sync the directory once, for all names of 1 to 4. Crash: new segments may be gone as a whole, and
   snapshots and leader epochs the older ones; nothing of them counted as flushed.
6. Make the directory's own name durable, at the first flush of all. Crash: the log may be gone as a
   whole; nothing of it counted as flushed.

The owner cancels a pending flush before it cuts or removes what the flush may touch; `cancel`
returns when `run` is not running and never will. Called by `log.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from storage.file_system import FileSystem
from storage.leader_epochs import LeaderEpoch, LeaderEpochs
from storage.segment import Segment

Snapshot = Callable[[], bytes]
"""Gives the bytes of a producer snapshot, in any one thread."""


@dataclass(slots=True, kw_only=True)
class PendingFlush:
    """What one flush covers: everything below `end_offset`."""

    end_offset: int
    directory: str
    segments: Sequence[Segment]
    """Those with bytes to sync, the written one included."""
    unsaved: Sequence[Segment]
    """Closed ones whose index files are behind."""
    snapshots: dict[str, Snapshot]
    """Producer snapshots by path; they are encoded here: a million producers take a second."""
    snapshot_offsets: Sequence[int]
    has_new_files: bool
    make_name_durable: Callable[[], None] | None
    leader_epochs: LeaderEpochs
    epochs: tuple[LeaderEpoch, ...] | None
    """The epochs of all that the flush covers; None where they are on disk."""
    _fs: FileSystem
    _lock: threading.Lock = field(default_factory=threading.Lock)
    is_done: bool = False
    is_cancelled: bool = False

    def run(self) -> None:
        """Does the work; nothing when cancelled. Raises `StorageError`."""
        with self._lock:
            if self.is_cancelled or self.is_done:
                return
            for segment in self.segments:
                segment.file.sync()
            for segment in self.unsaved:
                segment.indexes.save()
            for path, encode in self.snapshots.items():
                self._fs.write_atomic(path, encode(), sync_name=False)
            if self.epochs is not None:
                self.leader_epochs.write(self.epochs)
            has_new_names = self.unsaved or self.snapshots or self.epochs is not None
            if self.has_new_files or has_new_names:
                self._fs.sync_directory(self.directory)
            if self.make_name_durable is not None:
                self.make_name_durable()
            self.is_done = True

    def cancel(self) -> None:
        """Waits for `run` where it is at work, and keeps it from beginning otherwise."""
        with self._lock:
            self.is_cancelled = True
