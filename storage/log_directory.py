"""The data directory: its owner, its logs, and what is kept of them from one run to the next.

Opening, in this order (`claim` does 1 and 2, `open_logs` the rest):
1. Lock the directory. A second broker is refused with the name of the holder; the kernel drops the
   lock with the process.
2. Read `meta.properties`, or write it into a new directory.
3. Read the checkpoints, and remove what a creation that was cut short has left
   (`partition_directories.py`). Crash: done again.
4. Refuse the start if a partition that the checkpoints know has no directory, unless it was deleted or
   set aside: such partitions are dropped from the checkpoints now. `leftovers` are the directories of
   deletions that were cut short. Crash: done again.
5. Read the clean-shutdown marker, and remove it, durably (`tail_safety.py`). Crash: the logs are
   scanned although that was not needed.
6. Open every log. Then sync those that were not closed, together, before anything is appended to them.
7. Once the cluster counts on nothing that may be lost: `vouch_for_tail` writes the boot id. Crash
   or close before: the next start finds the tail as unsafe as this one did.

Closing: close every log, write the checkpoints, write the marker. A crash before the last step means a
scan at the next start. After a disk failure (`failure`) no marker is written, and the boot id is removed.

Invariant: a start deletes no log; it opens, refuses or sets aside (`strays.py`).

Single owner, as with the logs. Called by the broker; knows nothing of topics beyond their names.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from typing import Final

from echoless.storage import paths
from echoless.storage.clock_checkpoint import ClockReading, last_reading, write_clock
from echoless.storage.compaction.compaction import Uncleanable
from echoless.storage.directory_checkpoints import (
    NO_OFFSETS,
    CheckpointedOffsets,
    DirectoryCheckpoints,
    PartitionOffsets,
    PendingCheckpoint,
)
from echoless.storage.disk_work import RunAll, one_by_one
from echoless.storage.file_system import FileLock, FileSystem, StorageError
from echoless.storage.log import Log
from echoless.storage.log_config import LogConfig
from echoless.storage.meta_properties import claim_directory
from echoless.storage.opening import LogOpening
from echoless.storage.partition_directories import PartitionDirectories
from echoless.storage.partition_metadata import write_topic_id_unsynced
from echoless.storage.partition_names import PartitionNames
from echoless.storage.pending_flush import PendingFlush
from echoless.storage.pending_removal import PendingRemoval
from echoless.storage.producer_id_checkpoint import (
    SeenCounts,
    read_seen_counts,
    write_seen_counts,
)
from echoless.storage.scrub import Damage
from echoless.storage.strays import Stray, find_strays, forget_restored, is_restored, set_aside
from echoless.storage.tail_safety import TailSafety

Partition = tuple[str, int]

logger = logging.getLogger(__name__)

_SYNCED_AT_ONCE: Final = 200
"""Logs that are synced together at a start, before others have a turn."""
_CLOSED_AT_ONCE: Final = 100
"""Logs whose last snapshots are in memory at the same time."""


class LogDirectory:
    """An open data directory with its logs. Use `LogDirectory.open`."""

    def __init__(self, fs: FileSystem, path: str, lock: FileLock, cluster_id: str) -> None:
        self.path = path
        self.cluster_id = cluster_id
        self.logs: dict[Partition, Log] = {}
        self.topic_ids: dict[Partition, uuid.UUID] = {}
        self.high_watermarks: dict[Partition, int] = {}
        """Read when the directory was opened, and limited to the log, which may have lost its tail."""
        self._fs = fs
        self._is_open = False
        self._lock = lock
        self._checkpoints = DirectoryCheckpoints(fs, path)
        self._names = PartitionNames(fs, path)
        self._tail = TailSafety(fs, path)
        self.strays: list[Stray] = []
        """The logs that were set aside, now and before, by name."""
        self.damaged: dict[str, Damage] = {}
        """Segments in which the scrubber has found damage, by path."""
        self.uncleanable: dict[Partition, Uncleanable] = {}
        """Partitions that could not be compacted, until they can be."""
        self._leftovers: list[str] = []
        """Directories of deleted partitions that an earlier run has not removed."""
        self.failure: StorageError | None = None
        """The first disk failure; from then on the directory is offline."""

    @classmethod
    def open(
        cls,
        path: str,
        *,
        broker_id: int,
        fs: FileSystem,
        now_ms: int,
        config_for: Callable[[str], LogConfig],
        cluster_id: str | None = None,
        is_committed: bool = False,
    ) -> LogDirectory:
        """Opens or creates the directory and opens all its logs: `claim`, then `open_logs`."""
        directory = cls.claim(path, broker_id=broker_id, fs=fs, cluster_id=cluster_id)
        directory.open_logs(now_ms, config_for, is_committed=is_committed)
        return directory

    @classmethod
    def claim(
        cls, path: str, *, broker_id: int, fs: FileSystem, cluster_id: str | None = None
    ) -> LogDirectory:
        """Locks the directory, or creates it; opens no log yet.

        `cluster_id` is for a new directory (default: a random one). Raises `LockHeldError`,
        `ForeignDirectoryError`, `StorageError`.
        """
        path = path.rstrip("/")
        _make_directory(fs, path)
        lock = fs.lock(paths.join(path, paths.LOCK), f"broker {broker_id}")
        try:
            is_new = not fs.exists(paths.join(path, paths.META_PROPERTIES))
            cluster_id = claim_directory(fs, path, broker_id, cluster_id)
            directory = cls(fs, path, lock, cluster_id)
        except BaseException:
            lock.release()
            raise
        if is_new:
            directory._tail.note_new_directory()
        return directory

    @property
    def was_clean(self) -> bool:
        """Whether the last shutdown was clean."""
        return self._tail.was_clean

    @property
    def tail_is_safe(self) -> bool:
        """Whether all that was ever appended here is there: the power has not failed since."""
        return self._tail.is_safe

    def vouch_for_tail(self) -> None:
        """Makes `tail_is_safe` hold at the next start, unless the power fails before it.

        To be called once no one counts on what this start may have found missing: until then a
        second start must come to the same answer as this one. Raises `StorageError`.
        """
        if self.failure is None:
            self._tail.vouch()

    def doubt_tail(self) -> None:
        """Withdraws `tail_is_safe`: some of what this broker had is no longer served."""
        self._tail.doubt()

    def open_logs(
        self, now_ms: int, config_for: Callable[[str], LogConfig], *, is_committed: bool = False
    ) -> None:
        """Opens all logs, each with the configuration of its topic, which `config_for` takes.

        `is_committed`: they were synced before each acknowledgement. A configuration with a narrower
        window than the topic's would forget batches, so it has to be the topic's from the start.
        Releases the directory if it fails. Raises `CorruptLogError`, `StorageError`.
        """
        for _ in self.opening(now_ms, config_for, is_committed=is_committed):
            pass

    def opening(
        self,
        now_ms: int,
        config_for: Callable[[str], LogConfig],
        *,
        is_committed: bool = False,
        run_all: RunAll = one_by_one,
    ) -> Generator[tuple[int, int], None, None]:
        """Does what `open_logs` does, a log at a time: yields how many are open, and of how many.

        `run_all` does the syncs of logs that were not closed, together: one after the other they would be most of
        a start after a kill.

        Releases the directory if it fails, or if the generator is closed before its end.
        """
        try:
            syncs: list[Callable[[], None]] = []
            yield from self._open_logs(
                now_ms, config_for, is_committed=is_committed, sync_later=syncs.append
            )
            for start in range(0, len(syncs), _SYNCED_AT_ONCE):
                run_all(syncs[start : start + _SYNCED_AT_ONCE])
                yield len(self.logs), len(self.logs)
            self._is_open = True
        except BaseException:
            for log in self.logs.values():
                log.abandon()
            self._lock.release()
            raise

    def _open_logs(
        self,
        now_ms: int,
        config_for: Callable[[str], LogConfig],
        *,
        is_committed: bool,
        sync_later: Callable[[Callable[[], None]], None],
    ) -> Generator[tuple[int, int], None, None]:
        directories = PartitionDirectories(self._fs, self.path, self._checkpoints)
        known = directories.known
        self.topic_ids = found = directories.find(now_ms, is_tail_safe=self._tail.is_safe)
        self.strays = find_strays(self._fs, self.path, _warn)
        self._leftovers = directories.drop_gone(found, self.strays)
        config_for = cache(config_for)
        self._tail.remove_marker()
        for key in sorted(found):
            yield len(self.logs), len(found)
            self.logs[key] = self._open_found(
                key,
                config_for(key[0]),
                now_ms,
                known,
                is_committed=is_committed,
                sync_later=sync_later,
            )
        self.note_changed(found)
        for key, high_watermark in known.high_watermarks.items():
            log = self.logs.get(key)
            if log is not None:
                self.high_watermarks[key] = min(
                    max(high_watermark, log.log_start_offset), log.log_end_offset
                )

    def _open_found(
        self,
        key: Partition,
        config: LogConfig,
        now_ms: int,
        known: CheckpointedOffsets,
        *,
        is_committed: bool,
        sync_later: Callable[[Callable[[], None]], None],
    ) -> Log:
        opening = self._opening(
            key, config, now_ms, known.of(key), cleaned_to=known.cleaned_to.get(key, 0)
        )
        if is_restored(self._fs, opening.directory):
            log = Log.open(opening)
            logger.warning("%s-%d was restored: %s", *key, _figures(log))
            forget_restored(self._fs, opening.directory)
            return log
        return Log.open(
            replace(
                opening,
                is_start_known=key in known.log_starts,
                clean=self.was_clean,
                is_committed=is_committed,
                is_tail_safe=self.tail_is_safe,
                sync_later=sync_later,
            )
        )

    def _opening(
        self,
        key: Partition,
        config: LogConfig,
        now_ms: int,
        offsets: PartitionOffsets = NO_OFFSETS,
        cleaned_to: int = 0,
    ) -> LogOpening:
        path = paths.partition_directory(self.path, *key)
        make_name_durable = None
        if not offsets.recovery_point:
            # No flush is known to have made its name durable, in this run or in an earlier one.
            make_name_durable = partial(self._names.sync, path, self._names.made())
        return LogOpening(
            directory=path,
            config=config,
            fs=self._fs,
            now_ms=now_ms,
            recovery_point=offsets.recovery_point,
            log_start_offset=offsets.log_start,
            cleaned_to=cleaned_to,
            kept=self._checkpoints.of_partition(key),
            make_name_durable=make_name_durable,
        )

    def make(
        self, topic: str, partition: int, topic_id: uuid.UUID, config: LogConfig, *, now_ms: int
    ) -> Log:
        """Creates a partition's directory and empty log; `add` makes them part of this directory.

        Any one thread may call it, and nothing waits for the disk: a power failure may take all of
        it until the first flush of the log (`partition_names.py`). Raises `StorageError`.

        1. Create the directory and write `partition.metadata`. A crash before or in between leaves a
           directory without records, which is removed at the next start.
        2. Create the first segment. A directory that a failed attempt has left is opened as found.
        """
        path = paths.partition_directory(self.path, topic, partition)
        is_new = not self._fs.exists(path)
        self._fs.make_directory(path)
        write_topic_id_unsynced(self._fs, path, topic_id, config.older_ids_end)
        opening = self._opening((topic, partition), config, now_ms)
        return Log.open(replace(opening, is_new=is_new))

    def add(self, topic: str, partition: int, topic_id: uuid.UUID, log: Log) -> None:
        """Adds what `make` created."""
        key = topic, partition
        assert key not in self.logs, f"{topic}-{partition} exists"
        self.logs[key] = log
        self.topic_ids[key] = topic_id
        self.note_changed([key])

    def create(
        self, topic: str, partition: int, topic_id: uuid.UUID, config: LogConfig, *, now_ms: int
    ) -> Log:
        """Does `make` and `add`."""
        log = self.make(topic, partition, topic_id, config, now_ms=now_ms)
        self.add(topic, partition, topic_id, log)
        return log

    def forget(self, keys: Collection[Partition]) -> PendingRemoval:
        """Takes partitions out of this directory; returns the rest of the work."""
        self._checkpoints.forget_pending()
        self.note_changed(keys)
        for key in keys:
            self.high_watermarks.pop(key, None)
        return PendingRemoval(
            logs=[self.logs.pop(key) for key in keys],
            partitions={key: self.topic_ids.pop(key) for key in keys},
            _data_dir=self.path,
            _checkpoints=self._checkpoints,
            _fs=self._fs,
        )

    def leftovers(self) -> PendingRemoval:
        """Directories of deleted partitions that an earlier run has renamed and not removed."""
        if self._leftovers:
            logger.info(
                "finishing the deletion of %d partitions, %s first",
                len(self._leftovers),
                self._leftovers[0],
            )
        return PendingRemoval.of_renamed(self._leftovers, self.path, self._checkpoints, self._fs)

    def delete(self, topic: str, partition: int) -> None:
        """Removes a partition and its files at once. Raises `StorageError`."""
        pending = self.forget([(topic, partition)])
        pending.run()
        while pending.remove_some():
            pass

    def set_aside(self, reasons: Mapping[Partition, str], *, now_ms: int) -> None:
        """Sets aside logs that the broker should not hold; `strays.py` has the steps.

        Each is logged at ERROR. Raises `StorageError`.
        """
        if not reasons:
            return
        self.note_changed(reasons)
        known = self._checkpoints.read()
        for key, reason in reasons.items():
            log = self.logs.pop(key)
            log.close()
            stray = Stray(
                topic=key[0],
                partition=key[1],
                topic_id=self.topic_ids.pop(key),
                reason=reason,
                set_aside_ms=now_ms,
                offsets=known.of(key),
                records=log.log_end_offset - log.log_start_offset,
            )
            stray = set_aside(self._fs, self.path, stray)
            self.high_watermarks.pop(key, None)
            self.strays.append(stray)
            logger.error(
                "the log of %s-%d is set aside as %s (%s): %s; list, restore or delete it with "
                "`echoless strays`, the broker stopped",
                *key,
                paths.join(self.path, stray.name),
                _figures(log),
                reason,
            )
        self._fs.sync_directory(self.path)
        self._checkpoints.drop(reasons)

    def take_changed(self) -> dict[Partition, None]:
        """The partitions whose logs have changed since the last call: opened, added or forgotten too.

        Whoever takes them and cannot do what follows gives them back (`note_changed`).
        """
        changed, self._checkpoints.changed = self._checkpoints.changed, {}
        return changed

    def note_changed(self, keys: Iterable[Partition]) -> None:
        """Has the next `take_changed` return these partitions."""
        self._checkpoints.changed.update(dict.fromkeys(keys))

    def start_checkpoint(
        self, high_watermarks: Mapping[Partition, int], changed: Iterable[Partition] | None = None
    ) -> PendingCheckpoint:
        """Notes the present offsets; `run` writes them, in any one thread.

        `changed`: only those of these partitions; the others stay on disk as they are. None: of all.
        """
        keys = self.logs if changed is None else changed
        logs = {key: self.logs[key] for key in keys if key in self.logs}
        offsets = CheckpointedOffsets(
            {key: log.recovery_point for key, log in logs.items()},
            {key: high_watermarks[key] for key in logs if key in high_watermarks},
            {key: _safe_start(log) for key, log in logs.items()},
            {key: reached for key, log in logs.items() if (reached := log.compaction.cleaned_to)},
        )
        return self._checkpoints.start(offsets, is_whole=changed is None)

    def checkpoint(self, high_watermarks: Mapping[Partition, int]) -> None:
        """Writes recovery points, high watermarks and log starts. Raises `StorageError`."""
        self.start_checkpoint(high_watermarks).run()

    def fail(self, error: StorageError) -> None:
        """Takes the directory offline; the first failure is kept.

        A disk that failed may have lost what it had accepted, so the tail is no longer vouched for.
        """
        if self.failure is None:
            self.failure = error
            with contextlib.suppress(StorageError):
                self._tail.remove_boot_id()

    def release(self) -> None:
        """Releases the directory before any log is opened; nothing is written."""
        assert not self.logs, "logs are closed by `close`"
        self._lock.release()

    def last_clock(self) -> ClockReading | None:
        """The reading from which the directory's clock resumes; None in a new directory."""
        return last_reading(self._fs, self.path)

    def save_clock(self, reading: ClockReading) -> None:
        """Saves the reading for the next start. Raises `StorageError`."""
        write_clock(self._fs, self.path, reading)

    def seen_counts(self) -> SeenCounts:
        """Reads how far the broker on this directory has seen the coordinator count. Raises `StorageError`."""
        return read_seen_counts(self._fs, self.path)

    def save_seen_counts(self, seen: SeenCounts) -> None:
        """Saves how far the coordinator has counted, durably. Raises `StorageError`."""
        write_seen_counts(self._fs, self.path, seen)

    def close(
        self,
        high_watermarks: dict[Partition, int],
        clock: ClockReading | None = None,
        *,
        run_all: RunAll = one_by_one,
    ) -> None:
        """Closes every log and releases the lock; a clean shutdown unless something failed.

        `run_all` does the work that waits for the disk. If the logs were never opened, the directory
        stays as it was found. After a failure nothing more is written. Raises the first `StorageError`
        of the closing itself, after closing what can be closed.
        """
        if not self._is_open:
            # The checkpoints have not been read, and must stay.
            self._lock.release()
            return
        was_online = self.failure is None
        logs = iter(self.logs.values())
        snapshots = 0
        while some := list(islice(logs, _CLOSED_AT_ONCE)):
            snapshots += self._close(some, run_all)
        if snapshots:
            logger.info("removed %d producer snapshots that newer ones have replaced", snapshots)
        try:
            if self.failure is None and not any(log.failure for log in self.logs.values()):
                self.checkpoint(high_watermarks)
                if clock is not None:
                    self.save_clock(clock)
                self._tail.write_marker()
        finally:
            self._lock.release()
        if was_online and self.failure is not None:
            raise self.failure

    def _close(self, logs: Sequence[Log], run_all: RunAll) -> int:
        """Closes some logs; returns how many producer snapshots were removed."""
        if self.failure is not None:
            for log in logs:
                log.abandon()
            return 0
        pending: list[tuple[Log, PendingFlush | None]] = []
        try:
            pending += ((log, log.start_close()) for log in logs)
            run_all([flush.run for _, flush in pending if flush is not None])
        except StorageError as error:
            self.fail(error)
        removed = 0
        for log, flush in pending:
            try:
                removed += log.finish_close(flush)
            except StorageError as error:
                self.fail(error)
        return removed


def _safe_start(log: Log) -> int:
    """The log start to save: at its first segment at least, and never above what was synced."""
    return max(log.first_offset, min(log.log_start_offset, log.recovery_point))


def _figures(log: Log) -> str:
    records = log.log_end_offset - log.log_start_offset
    return f"{records} records from offset {log.log_start_offset}, {log.size_bytes} bytes"


def _warn(error: StorageError) -> None:
    logger.error("a log that was set aside cannot be listed: %s", error)


def _make_directory(fs: FileSystem, path: str) -> None:
    """Creates the directory and its missing parents, so that no power failure takes any of them."""
    missing, one = [], path
    while not fs.exists(one):
        missing.append(one)
        one = paths.parent_of(one)
    fs.make_directory(path)
    for one in reversed(missing):
        fs.sync_directory(paths.parent_of(one))
