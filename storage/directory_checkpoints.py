"""The three checkpoint files of a data directory: recovery points, high watermarks, log starts.

They are written together from time to time, which may happen in another thread. Where they must
come down, because a log is about to be cut, that is written at once, and a pending write of older
facts is not carried out any more.

Invariant: the recovery points on disk are never above what was synced, and no offset on disk is above
a cut.

Called by `log_directory.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass

from storage import paths
from storage.checkpoints import OffsetCheckpoint
from storage.file_system import FileSystem

Partition = tuple[str, int]
Offsets = dict[Partition, int]


@dataclass(slots=True, kw_only=True)
class PendingCheckpoint:
    """Offsets of one moment on their way to disk."""

    recovery_points: Offsets
    high_watermarks: Offsets
    log_starts: Offsets
    _checkpoints: DirectoryCheckpoints
    _generation: object

    def run(self) -> None:
        """Writes the three files, in any one thread; nothing when newer facts came in between.

        Raises `StorageError`.
        """
        self._checkpoints.write(self, self._generation)


class DirectoryCheckpoints:
    """Reads and writes the three files."""

    def __init__(self, fs: FileSystem, data_dir: str) -> None:
        def checkpoint(name: str) -> OffsetCheckpoint:
            return OffsetCheckpoint(fs, paths.join(data_dir, name))

        self._recovery_points = checkpoint(paths.RECOVERY_POINT_CHECKPOINT)
        self._high_watermarks = checkpoint(paths.HIGH_WATERMARK_CHECKPOINT)
        self._log_starts = checkpoint(paths.LOG_START_CHECKPOINT)
        self._lock = threading.Lock()
        self._generation = object()
        """Another one whenever what a pending checkpoint holds becomes wrong."""

    def read(self, partitions: Collection[Partition]) -> PendingCheckpoint:
        """What the files say of `partitions`; entries of all others are dropped, durably."""
        offsets = [
            self._read_known(checkpoint, partitions)
            for checkpoint in (self._recovery_points, self._high_watermarks, self._log_starts)
        ]
        return self.start(*offsets)

    def _read_known(
        self, checkpoint: OffsetCheckpoint, partitions: Collection[Partition]
    ) -> Offsets:
        offsets = checkpoint.read()
        known = {key: offset for key, offset in offsets.items() if key in partitions}
        if len(known) < len(offsets):
            checkpoint.write(known)
        return known

    def start(
        self, recovery_points: Offsets, high_watermarks: Offsets, log_starts: Offsets
    ) -> PendingCheckpoint:
        """What `PendingCheckpoint.run` will write, unless something newer is pending by then."""
        self._generation = object()
        return PendingCheckpoint(
            recovery_points=recovery_points,
            high_watermarks=high_watermarks,
            log_starts=log_starts,
            _checkpoints=self,
            _generation=self._generation,
        )

    def write(self, pending: PendingCheckpoint, generation: object) -> None:
        """Use `PendingCheckpoint.run`."""
        with self._lock:
            if generation is self._generation:
                self._log_starts.write(pending.log_starts)
                self._recovery_points.write(pending.recovery_points)
                self._high_watermarks.write(pending.high_watermarks)

    def lower(self, key: Partition, offset: int) -> None:
        """Brings one partition's offsets down to `offset`, durably: its log is about to end there."""
        self._generation = object()
        with self._lock:
            for checkpoint in (self._recovery_points, self._high_watermarks, self._log_starts):
                offsets = checkpoint.read()
                if offsets.get(key, 0) > offset:
                    checkpoint.write(offsets | {key: offset})

    def forget_pending(self) -> None:
        """What is pending names partitions that are going, and must not be written any more."""
        self._generation = object()

    def drop(self, keys: Collection[Partition]) -> None:
        """Forgets partitions, durably, in any one thread."""
        with self._lock:
            for checkpoint in (self._recovery_points, self._high_watermarks, self._log_starts):
                offsets = checkpoint.read()
                left = {key: offset for key, offset in offsets.items() if key not in keys}
                if len(left) < len(offsets):
                    checkpoint.write(left)

    def recovery_points(self) -> Offsets:
        """As the file has them. Raises `CheckpointError`."""
        return self._recovery_points.read()
