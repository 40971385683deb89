"""A flush in three steps, so that the owner's thread does not wait for the disk.

    pending = log.start_flush()     owner: notes what has to be synced, touches no file
    pending.run()                   any one thread: syncs, while the owner continues to append
    log.finish_flush(pending)       owner: the recovery point moves

The steps of `run`, and what opening the log does after a crash at each of them:
1. Sync the segments that reach beyond the recovery point. Crash: they are scanned.
2. Write and sync the indexes of closed segments. Crash: the segments are scanned, the indexes rebuilt.
3. Write the producer snapshots of the rolls, each atomically. Crash: an older one, and a replay.
4. Write the leader epochs if the file lacks any. Crash: they are read from the batches above the
   recovery point.
5. Sync the directory once, for all names of 1 to 4. Crash: new segments may be missing, snapshots and
   leader epochs may be the older ones; none of that counted as flushed.
6. Make the directory's own name durable, at the first flush. Crash: the whole log may be missing;
   nothing of it counted as flushed.

The owner cancels a pending flush before it truncates or removes files that the flush may touch;
`cancel` returns when `run` is not running and never will. Called by `durability.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from echoless.storage.file_system import FileSystem
from echoless.storage.leader_epochs import LeaderEpoch, LeaderEpochs
from echoless.storage.segment import Segment

Snapshot = Callable[[], bytes]
"""Returns the bytes of a producer snapshot, in any one thread."""


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class PendingFlush:
    """One flush of everything below `end_offset`."""

    end_offset: int
    directory: str
    segments: Sequence[Segment]
    """The segments with bytes to sync, including the active one."""
    unsaved: Sequence[Segment]
    """Closed segments whose index files are out of date."""
    snapshots: dict[str, Snapshot]
    """Producer snapshots by path; they are encoded here: a million producers take a second."""
    snapshot_offsets: Sequence[int]
    has_new_files: bool
    make_name_durable: Callable[[], None] | None
    leader_epochs: LeaderEpochs
    epochs: tuple[LeaderEpoch, ...] | None
    """The epochs of everything that the flush covers; None if they are on disk."""
    fs: FileSystem
    is_done: bool = False
    is_cancelled: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Does the work, unless cancelled. Raises `StorageError`."""
        with self._lock:
            if self.is_cancelled or self.is_done:
                return
            for segment in self.segments:
                segment.file.sync()
            for segment in self.unsaved:
                segment.indexes.save()
            for path, encode in self.snapshots.items():
                self.fs.write_atomic(path, encode(), sync_name=False)
            if self.epochs is not None:
                self.leader_epochs.write(self.epochs)
            has_new_names = self.unsaved or self.snapshots or self.epochs is not None
            if self.has_new_files or has_new_names:
                self.fs.sync_directory(self.directory)
            if self.make_name_durable is not None:
                self.make_name_durable()
            self.is_done = True

    def cancel(self) -> None:
        """Waits for `run` if it is running, and keeps it from starting otherwise."""
        with self._lock:
            self.is_cancelled = True
