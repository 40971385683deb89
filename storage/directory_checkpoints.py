"""The checkpoint files of a data directory: recovery points, high watermarks, log starts, compaction.

They are written together from time to time, in any thread. If an offset has to come down because a log
is about to be truncated, it is written at once, and a pending write of older offsets is dropped. While a
log is being changed in another thread, checkpoints leave its offsets on disk as they are (`hold`).

Invariant: the recovery points on disk are never above what was synced, and no offset on disk is above
a truncation.

Called by `log_directory.py`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from echoless.storage import paths
from echoless.storage.checkpoints import CheckpointError, NewerCheckpointError, OffsetCheckpoint
from echoless.storage.file_system import FileSystem
from echoless.storage.kept_offsets import KeptOffsets

logger = logging.getLogger(__name__)

Partition = tuple[str, int]
Offsets = dict[Partition, int]


class PartitionOffsets(NamedTuple):
    """One partition's offsets in the three files."""

    recovery_point: int
    high_watermark: int
    log_start: int


NO_OFFSETS: Final = PartitionOffsets(0, 0, 0)


class CheckpointedOffsets(NamedTuple):
    """Offsets by partition, as the files hold them."""

    recovery_points: Offsets
    high_watermarks: Offsets
    log_starts: Offsets
    cleaned_to: Offsets
    """Offsets from which compaction goes on, of compacted logs alone."""

    def of(self, key: Partition) -> PartitionOffsets:
        """The offsets of one partition; 0 for each that a file lacks."""
        return PartitionOffsets(
            self.recovery_points.get(key, 0),
            self.high_watermarks.get(key, 0),
            self.log_starts.get(key, 0),
        )

    @property
    def partitions(self) -> set[Partition]:
        """Every partition in any of the files."""
        return {*self.recovery_points, *self.high_watermarks, *self.log_starts}


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class PendingCheckpoint:
    """The offsets of one moment, to be written."""

    offsets: CheckpointedOffsets
    is_whole: bool
    """Whether partitions that are not in `offsets` leave the files."""
    _checkpoints: DirectoryCheckpoints
    _generation: object
    is_written: bool = False
    """Whether `run` has written them; it drops them if newer ones have replaced some."""

    def run(self) -> None:
        """Writes the files, in any one thread, unless newer offsets have replaced these.

        Raises `StorageError`.
        """
        self.is_written = self._checkpoints.write(self, self._generation)


class DirectoryCheckpoints:
    """Reads and writes the files."""

    def __init__(self, fs: FileSystem, data_dir: str) -> None:
        def checkpoint(name: str) -> OffsetCheckpoint:
            return OffsetCheckpoint(fs, paths.join(data_dir, name))

        self.changed: dict[Partition, None] = {}
        """Partitions whose logs have changed since these were last taken, in order. For the owner's thread alone."""
        self._recovery_points = checkpoint(paths.RECOVERY_POINT_CHECKPOINT)
        self._high_watermarks = checkpoint(paths.HIGH_WATERMARK_CHECKPOINT)
        self._log_starts = checkpoint(paths.LOG_START_CHECKPOINT)
        self._cleaned_to = checkpoint(paths.CLEANER_CHECKPOINT)
        self._lock = threading.Lock()
        self._generation = object()
        """Replaced whenever a pending checkpoint becomes wrong."""
        self._held: dict[Partition, KeptOffsets] = {}
        """The logs that are being changed: their offsets on disk are not those of memory."""

    def of_partition(self, key: Partition) -> KeptOffsets:
        """One partition's offsets in these files, for its log."""
        return _PartitionOffsetsOnDisk(self, key)

    def written_log_start(self, key: Partition) -> int:
        """The log start on disk."""
        return self._log_starts.get(key)

    def written_recovery_point(self, key: Partition) -> int:
        """The recovery point on disk."""
        return self._recovery_points.get(key)

    def read(self) -> CheckpointedOffsets:
        """Reads the files, including partitions that no longer exist. Raises `StorageError`."""
        try:
            return CheckpointedOffsets(
                recovery_points=self._recovery_points.read(),
                high_watermarks=self._high_watermarks.read(),
                log_starts=self._log_starts.read(),
                cleaned_to=self._read_cleaned_to(),
            )
        except NewerCheckpointError:
            raise
        except CheckpointError as error:
            reason = str(error).removeprefix(f"{error.path}: ")
            raise CheckpointError(
                error.path,
                f"{reason}. Bring a copy back, or remove the file: all logs are then read from their "
                f"beginning, and records that DeleteRecords removed may come back",
            ) from error

    def _read_cleaned_to(self) -> Offsets:
        """Reads where compaction goes on; from the beginning of the logs if the file is damaged."""
        try:
            return self._cleaned_to.read()
        except NewerCheckpointError:
            raise
        except CheckpointError as error:
            logger.warning("compaction begins again at the beginning of each log: %s", error)
            self._cleaned_to.forget_damage()
            return {}

    def start(self, offsets: CheckpointedOffsets, *, is_whole: bool) -> PendingCheckpoint:
        """Returns the work of writing these offsets; it does nothing if a newer one is pending by then."""
        self._generation = object()
        return PendingCheckpoint(
            offsets=offsets, is_whole=is_whole, _checkpoints=self, _generation=self._generation
        )

    def write(self, pending: PendingCheckpoint, generation: object) -> bool:
        """Use `PendingCheckpoint.run`."""
        with self._lock:
            if generation is not self._generation:
                return False
            new, held = pending.offsets, frozenset(self._held)
            for file, offsets in (
                (self._log_starts, new.log_starts),
                (self._recovery_points, new.recovery_points),
                (self._high_watermarks, new.high_watermarks),
                (self._cleaned_to, new.cleaned_to),
            ):
                named = file.partitions() if pending.is_whole else new.log_starts.keys()
                file.change(
                    {key: offset for key, offset in offsets.items() if key not in held},
                    without=[key for key in named if key not in offsets and key not in held]
                    if pending.is_whole or file is self._cleaned_to
                    else (),
                )
            return True

    def hold(self, key: Partition, holder: KeptOffsets) -> None:
        """Has checkpoints leave the offsets of a log on disk as they are until `release`."""
        self._held[key] = holder

    def release(self, key: Partition, holder: KeptOffsets) -> None:
        """Ends `hold`; a pending checkpoint has the offsets of before, and is dropped."""
        if self._held.get(key) is holder:
            del self._held[key]
            self._generation = object()

    def lower(self, key: Partition, offset: int) -> None:
        """Lowers one partition's offsets to `offset`, durably: its log is about to end there."""
        self._generation = object()
        with self._lock:
            for file in (
                self._recovery_points,
                self._high_watermarks,
                self._cleaned_to,
                self._log_starts,
            ):
                file.lower(key, offset)

    def put_log_start(self, key: Partition, offset: int) -> None:
        """Sets one partition's log start to `offset`, durably."""
        self._generation = object()
        with self._lock:
            self._log_starts.change({key: offset})

    def put(self, key: Partition, offsets: PartitionOffsets) -> None:
        """Writes one partition's offsets, durably; the log start first, as `write` does."""
        recovery_point, high_watermark, log_start = offsets
        self._generation = object()
        with self._lock:
            for checkpoint, offset in (
                (self._log_starts, log_start),
                (self._recovery_points, recovery_point),
                (self._high_watermarks, high_watermark),
            ):
                checkpoint.change({key: offset})

    def forget_pending(self) -> None:
        """Drops the pending checkpoint: it names partitions that are about to be removed."""
        self._generation = object()

    def drop(self, keys: Collection[Partition]) -> None:
        """Removes partitions from the files, durably, in any one thread."""
        with self._lock:
            for checkpoint in (
                self._cleaned_to,
                self._recovery_points,
                self._high_watermarks,
                self._log_starts,
            ):
                checkpoint.change({}, without=keys)


class _PartitionOffsetsOnDisk(KeptOffsets):
    """One partition's part of the three files."""

    __slots__ = ("_checkpoints", "_key")

    def __init__(self, checkpoints: DirectoryCheckpoints, key: Partition) -> None:
        self._checkpoints = checkpoints
        self._key = key

    @property
    def log_start(self) -> int:
        return self._checkpoints.written_log_start(self._key)

    @property
    def recovery_point(self) -> int:
        return self._checkpoints.written_recovery_point(self._key)

    def changed(self) -> None:
        self._checkpoints.changed[self._key] = None

    def lower(self, offset: int) -> None:
        self._checkpoints.lower(self._key, offset)

    def put_log_start(self, offset: int) -> None:
        self._checkpoints.put_log_start(self._key, offset)

    def hold(self) -> None:
        self._checkpoints.hold(self._key, self)

    def release(self) -> None:
        self._checkpoints.release(self._key, self)
