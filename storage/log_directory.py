"""The data directory: who owns it, which logs are in it, and what is known of them between runs.

Opening, in this order (`claim` does 1 and 2, `open_logs` the rest):
1. Lock. A second broker is refused and told who holds it; the kernel drops the lock with the
   process.
2. Read `meta.properties`, or write it into a new directory.
3. Remove what a creation that was cut short left behind.
4. Read the checkpoints. A partition that they know and that has no directory is missed, and the start
   is refused, unless it was deleted or set aside: those leave the checkpoints now. `leftovers` are the
   directories of deletions that were cut short. Crash: done again.
5. Read the clean-shutdown marker, and remove it, durably. Crash: the logs are scanned although that
   was not needed.
6. Open every log.
7. Once the cluster counts on nothing that may be lost: `vouch_for_tail` writes the boot id. Crash
   or close before: the next start finds the tail as unsafe as this one did.

Closing: close every log, write the checkpoints, write the marker, which says where nobody has vouched
for the tail. A crash before the last step means a scan at the next start. After a disk failure
(`failure`) no marker is written, and the boot id goes.

Invariant: a start deletes no log; it opens, refuses or sets aside (`strays.py`).

Single owner, as the logs. Called by the broker; knows nothing of topics beyond their names.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from typing import Final

from storage import paths
from storage.accepted_loss import with_remedy
from storage.clock_checkpoint import ClockReading, last_reading, write_clock
from storage.directory_checkpoints import (
    DirectoryCheckpoints,
    PartitionOffsets,
    PendingCheckpoint,
)
from storage.disk_work import RunAll, one_by_one
from storage.file_system import CorruptLogError, FileLock, FileSystem, StorageError
from storage.log import Log
from storage.log_config import LogConfig
from storage.partition_metadata import read_topic_id, write_topic_id_unsynced
from storage.partition_names import PartitionNames
from storage.pending_flush import PendingFlush
from storage.pending_removal import PendingRemoval
from storage.producer_id_checkpoint import read_last_claimed_id, write_last_claimed_id
from storage.properties_file import encode_uuid, read_properties, write_properties
from storage.scrub import Damage
from storage.strays import (
    Stray,
    find_strays,
    forget_restored,
    is_restored,
    set_aside,
    set_aside_unopened,
)

Partition = tuple[str, int]

logger = logging.getLogger(__name__)

_CLOSED_AT_ONCE: Final = 100
"""Logs whose last snapshots are in memory at the same time."""
_VERSION: Final = "0"
_META_SEPARATOR: Final = "="
_TAIL_UNSAFE: Final = b"tail unsafe\n"
"""In the marker of a clean shutdown: the logs are whole, but may lack what they once had."""


class ForeignDirectoryError(StorageError):
    """The data directory belongs to a broker of another id."""


class LogDirectory:
    """An open data directory with its logs. Use `LogDirectory.open`."""

    def __init__(self, fs: FileSystem, path: str, lock: FileLock, cluster_id: str) -> None:
        self.path = path
        self.cluster_id = cluster_id
        self.logs: dict[Partition, Log] = {}
        self.topic_ids: dict[Partition, uuid.UUID] = {}
        self.high_watermarks: dict[Partition, int] = {}
        """As read when the directory was opened, none outside its log: that may have lost its tail."""
        self._fs = fs
        self._is_open = False
        self._lock = lock
        self._checkpoints = DirectoryCheckpoints(fs, path)
        self._names = PartitionNames(fs, path)
        marker = paths.join(path, paths.CLEAN_SHUTDOWN)
        self.was_clean = fs.exists(marker)
        """Whether the last shutdown was clean."""
        was_safe = self.was_clean and not fs.read_bytes(marker)
        self.tail_is_safe = was_safe or self._is_same_boot()
        """Whether all that was ever appended here is there: no power failed since."""
        self._is_vouched_for = self.tail_is_safe
        self.strays: list[Stray] = []
        """What was set aside, now and before, oldest name first."""
        self.damaged: dict[str, Damage] = {}
        """Segments in which the scrubber found damage, by path."""
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
            cluster_id = _claim(fs, path, broker_id, cluster_id)
            directory = cls(fs, path, lock, cluster_id)
        except BaseException:
            lock.release()
            raise
        directory._is_vouched_for |= is_new  # it never had what it may lack
        return directory

    def open_logs(
        self, now_ms: int, config_for: Callable[[str], LogConfig], *, is_committed: bool = False
    ) -> None:
        """Opens all logs, each with the configuration of its topic, which `config_for` takes.

        `is_committed`: they were synced before each acknowledgement.

        The right one from the start: a window narrower than the topic's would forget batches.
        Gives the directory up where it fails. Raises `CorruptLogError`, `StorageError`.
        """
        for _ in self.opening(now_ms, config_for, is_committed=is_committed):
            pass

    def opening(
        self, now_ms: int, config_for: Callable[[str], LogConfig], *, is_committed: bool = False
    ) -> Generator[tuple[int, int], None, None]:
        """Does what `open_logs` does, a log at a time: yields how many are open, and of how many.

        Gives the directory up where it is closed before its end, too.
        """
        try:
            yield from self._open_logs(now_ms, config_for, is_committed=is_committed)
            self._is_open = True
        except BaseException:
            for log in self.logs.values():
                log.abandon()
            self._lock.release()
            raise

    def _open_logs(
        self, now_ms: int, config_for: Callable[[str], LogConfig], *, is_committed: bool
    ) -> Generator[tuple[int, int], None, None]:
        known = self._checkpoints.read()
        names = self._fs.list_directory(self.path)
        found = {key for name in names if (key := self._adopt(name, known, now_ms))}
        self.strays = find_strays(self._fs, self.path, _warn)
        self._forget_deleted(known, found, names)
        config_for = cache(config_for)
        self._fs.remove(paths.join(self.path, paths.CLEAN_SHUTDOWN))
        self._fs.sync_directory(self.path)
        for key in sorted(found):
            yield len(self.logs), len(found)
            offsets = known.of(key)
            path = paths.partition_directory(self.path, *key)
            was_restored = is_restored(self._fs, path)
            self.logs[key] = self._open_log(
                key,
                config_for(key[0]),
                now_ms,
                recovery_point=offsets.recovery_point,
                log_start_offset=offsets.log_start,
                is_start_known=key in known.log_starts and not was_restored,
                clean=self.was_clean and not was_restored,
                is_committed=is_committed and not was_restored,
                is_tail_safe=self.tail_is_safe and not was_restored,
            )
            if was_restored:
                logger.warning("%s-%d was restored: %s", *key, _figures(self.logs[key]))
                forget_restored(self._fs, path)
        for key, high_watermark in known.high_watermarks.items():
            log = self.logs.get(key)
            if log is not None:
                self.high_watermarks[key] = min(
                    max(high_watermark, log.log_start_offset), log.log_end_offset
                )

    def _forget_deleted(
        self, known: PendingCheckpoint, found: Collection[Partition], names: Iterable[str]
    ) -> None:
        """Step 4. Raises `CorruptLogError`."""
        deleted = [name for name in names if paths.is_deleted_directory(name)]
        gone = known.partitions.difference(found)
        for key in gone:
            self._check_not_missed(key, known.of(key), deleted)
        if gone:
            self._checkpoints.drop(gone)
        self._leftovers = [paths.join(self.path, name) for name in deleted]

    def _check_not_missed(
        self, key: Partition, offsets: PartitionOffsets, deleted: Iterable[str]
    ) -> None:
        # Until its first flush, which raises the recovery point, a power failure may take it as a whole.
        is_flushed = offsets.recovery_point or offsets.log_start
        if not is_flushed or any(paths.is_deleted_from(name, *key) for name in deleted):
            return
        if any(stray.accounts_for(key, offsets) for stray in self.strays):
            return
        path = paths.partition_directory(self.path, *key)
        reason = (
            f"the directory is missing, though the checkpoints know offsets up to {max(offsets)}"
        )
        raise with_remedy(CorruptLogError(path, 0, reason), path)

    def _is_same_boot(self) -> bool:
        boot_id = self._fs.boot_id()
        return bool(boot_id) and self._read_boot_id() == boot_id

    def _read_boot_id(self) -> str:
        path = paths.join(self.path, paths.BOOT_ID)
        if not self._fs.exists(path):
            return ""
        return self._fs.read_bytes(path).decode(errors="replace").strip()

    def vouch_for_tail(self) -> None:
        """From now on `tail_is_safe` holds at the next start, unless the power fails before it.

        To be called once nobody counts on what this start may have found missing: until then a
        second start must come to the same answer as this one. Raises `StorageError`.
        """
        self._is_vouched_for = True
        boot_id = self._fs.boot_id()
        if self.failure is None and boot_id and self._read_boot_id() != boot_id:
            self._fs.write_atomic(paths.join(self.path, paths.BOOT_ID), f"{boot_id}\n".encode())

    def _adopt(self, name: str, known: PendingCheckpoint, now_ms: int) -> Partition | None:
        """The partition in the directory `name`; removes what is half created."""
        path = paths.join(self.path, name)
        key = paths.parse_partition_directory(name)
        if key is None or not self._fs.is_directory(path):
            return None
        try:
            if not self._fs.exists(paths.join(path, paths.PARTITION_METADATA)):
                raise CorruptLogError(path, 0, f"there is no {paths.PARTITION_METADATA}")
            self.topic_ids[key] = read_topic_id(self._fs, path)
        except StorageError as error:
            self._give_up_half_created(key, error, known.of(key), now_ms)
            return None
        return key

    def _give_up_half_created(
        self, key: Partition, error: StorageError, offsets: PartitionOffsets, now_ms: int
    ) -> None:
        """A partition that no flush covered may be lost in part; of any other `error` is raised.

        Without records there is nothing to keep. Records that were never flushed, of a partition
        that nobody can name for sure, are set aside.
        """
        path = paths.partition_directory(self.path, *key)
        names = [name for name in self._fs.list_directory(path) if paths.parse_offset_file(name)]
        has_records = any(self._fs.read_bytes(paths.join(path, name)) for name in names)
        if offsets.recovery_point or (has_records and self.tail_is_safe):
            raise CorruptLogError(
                path,
                0,
                f"{error}. Bring the file back, or stop the broker and run: "
                f"echoless strays set-aside {self.path} {key[0]}-{key[1]}",
            ) from error
        if not has_records:
            logger.warning("removing %s, which was being created: %s", path, error)
            self._fs.remove_tree(path)
            return
        reason = f"the power failed before its first flush: {error}"
        stray = set_aside_unopened(self._fs, self.path, key, reason, now_ms)
        logger.error("%s is set aside as %s: %s", path, stray.name, reason)

    def _open_log(
        self,
        key: Partition,
        config: LogConfig,
        now_ms: int,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        is_start_known: bool = False,
        clean: bool = False,
        is_committed: bool = False,
        is_tail_safe: bool = False,
        is_new: bool = False,
    ) -> Log:
        path = paths.partition_directory(self.path, *key)
        make_name_durable = None
        if not recovery_point:
            # No flush is known to have made it durable, in this life or in an earlier one.
            make_name_durable = partial(self._names.sync, path, self._names.made())
        return Log.open(
            path,
            config,
            fs=self._fs,
            now_ms=now_ms,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            is_start_known=is_start_known,
            clean=clean,
            is_committed=is_committed,
            is_tail_safe=is_tail_safe,
            is_new=is_new,
            kept=self._checkpoints.of_partition(key),
            make_name_durable=make_name_durable,
        )

    def make(
        self, topic: str, partition: int, topic_id: uuid.UUID, config: LogConfig, *, now_ms: int
    ) -> Log:
        """Makes a partition's directory and its empty log; `add` makes it part of this directory.

        Any one thread may call it, and nothing waits for the disk: a power failure may take all of
        it, until the first flush of the log (`partition_names.py`). Raises `StorageError`.

        1. Make the directory and write `partition.metadata`. A crash before or in between leaves a
           directory without records, which is removed at the next start.
        2. Create the first segment. A directory that an attempt which failed has left is looked through.
        """
        path = paths.partition_directory(self.path, topic, partition)
        is_new = not self._fs.exists(path)
        self._fs.make_directory(path)
        write_topic_id_unsynced(self._fs, path, topic_id)
        return self._open_log((topic, partition), config, now_ms, is_new=is_new)

    def add(self, topic: str, partition: int, topic_id: uuid.UUID, log: Log) -> None:
        """Takes in what `make` made."""
        key = topic, partition
        assert key not in self.logs, f"{topic}-{partition} exists"
        self.logs[key] = log
        self.topic_ids[key] = topic_id

    def create(
        self, topic: str, partition: int, topic_id: uuid.UUID, config: LogConfig, *, now_ms: int
    ) -> Log:
        """`make` and `add`."""
        log = self.make(topic, partition, topic_id, config, now_ms=now_ms)
        self.add(topic, partition, topic_id, log)
        return log

    def forget(self, keys: Collection[Partition]) -> PendingRemoval:
        """Partitions are no longer part of this directory; what is left to do is in the answer."""
        self._checkpoints.forget_pending()
        logs, renames = [], {}
        for key in keys:
            logs.append(self.logs.pop(key))
            unique = self.topic_ids.pop(key).hex
            self.high_watermarks.pop(key, None)
            path = paths.partition_directory(self.path, *key)
            renames[path] = paths.deleted_directory(self.path, *key, unique)
        return PendingRemoval(
            logs=logs,
            renames=renames,
            partitions=frozenset(keys),
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
        """Takes logs out that the broker should not hold; `strays.py` has the steps.

        Says so at ERROR. Raises `StorageError`.
        """
        if not reasons:
            return
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

    def doubt_tail(self) -> None:
        """Some of what this broker had is not served any more: it may not count as in sync."""
        self.tail_is_safe = self._is_vouched_for = False

    def start_checkpoint(self, high_watermarks: dict[Partition, int]) -> PendingCheckpoint:
        """Notes the offsets of now; `run` writes them, in another thread where that is better."""
        return self._checkpoints.start(
            {key: log.recovery_point for key, log in self.logs.items()},
            dict(high_watermarks),
            {key: _safe_start(log) for key, log in self.logs.items()},
        )

    def checkpoint(self, high_watermarks: dict[Partition, int]) -> None:
        """Writes recovery points, high watermarks and log starts. Raises `StorageError`."""
        self.start_checkpoint(high_watermarks).run()

    def fail(self, error: StorageError) -> None:
        """Takes the directory offline; the first failure is kept.

        A disk that failed may have dropped what it had taken, so the tail is no longer vouched for.
        """
        if self.failure is None:
            self.failure = error
            with contextlib.suppress(StorageError):
                self._fs.remove(paths.join(self.path, paths.BOOT_ID))

    def release(self) -> None:
        """Gives the directory up again, before any log was opened; nothing is written."""
        assert not self.logs, "logs are closed by `close`"
        self._lock.release()

    def last_clock(self) -> ClockReading | None:
        """Where the directory's clock goes on; None in a new directory."""
        return last_reading(self._fs, self.path)

    def save_clock(self, reading: ClockReading) -> None:
        """Keeps the reading for the next start. Raises `StorageError`."""
        write_clock(self._fs, self.path, reading)

    def last_claimed_id(self) -> int:
        """The highest producer id that was claimed by a broker on this directory, -1 without one.

        Raises `StorageError`.
        """
        return read_last_claimed_id(self._fs, self.path)

    def save_claimed_id(self, producer_id: int) -> None:
        """Notes that ids up to this one were claimed, durably. Raises `StorageError`."""
        write_last_claimed_id(self._fs, self.path, producer_id)

    def close(
        self,
        high_watermarks: dict[Partition, int],
        clock: ClockReading | None = None,
        *,
        run_all: RunAll = one_by_one,
    ) -> None:
        """Closes every log and releases the lock; a clean shutdown unless something failed.

        `run_all` does what waits for the disk. Where the logs were never opened, the directory stays as
        it was found. After a failure nothing more is written. Raises the first `StorageError` of the
        closing itself, after closing what can be closed.
        """
        if not self._is_open:
            # What stands in the checkpoints is not known, and must stay.
            self._lock.release()
            return
        was_online = self.failure is None
        logs = iter(self.logs.values())
        while some := list(islice(logs, _CLOSED_AT_ONCE)):
            self._close(some, run_all)
        try:
            if self.failure is None and not any(log.failure for log in self.logs.values()):
                self.checkpoint(high_watermarks)
                if clock is not None:
                    self.save_clock(clock)
                marker = b"" if self._is_vouched_for else _TAIL_UNSAFE
                self._fs.write_atomic(paths.join(self.path, paths.CLEAN_SHUTDOWN), marker)
        finally:
            self._lock.release()
        if was_online and self.failure is not None:
            raise self.failure

    def _close(self, logs: Sequence[Log], run_all: RunAll) -> None:
        if self.failure is not None:
            for log in logs:
                log.abandon()
            return
        pending: list[tuple[Log, PendingFlush | None]] = []
        try:
            pending += ((log, log.start_close()) for log in logs)
            run_all([flush.run for _, flush in pending if flush is not None])
        except StorageError as error:
            self.fail(error)
        for log, flush in pending:
            try:
                log.finish_close(flush)
            except StorageError as error:
                self.fail(error)


def _safe_start(log: Log) -> int:
    """A log start that no power failure leaves above the log's end, and never below its first segment."""
    return max(log.first_offset, min(log.log_start_offset, log.recovery_point))


def _figures(log: Log) -> str:
    records = log.log_end_offset - log.log_start_offset
    return f"{records} records from offset {log.log_start_offset}, {log.size_bytes} bytes"


def _warn(error: StorageError) -> None:
    logger.error("a log that was set aside cannot be listed: %s", error)


def _make_directory(fs: FileSystem, path: str) -> None:
    """With its missing parents; no power failure takes any of them, and the logs with it."""
    missing, one = [], path
    while not fs.exists(one):
        missing.append(one)
        one = paths.parent_of(one)
    fs.make_directory(path)
    for one in reversed(missing):
        fs.sync_directory(paths.parent_of(one))


def _claim(fs: FileSystem, path: str, broker_id: int, cluster_id: str | None) -> str:
    """Reads or writes `meta.properties`; returns the cluster id in it."""
    meta_path = paths.join(path, paths.META_PROPERTIES)
    if not fs.exists(meta_path):
        cluster_id = cluster_id or encode_uuid(uuid.uuid4())
        meta = {"version": _VERSION, "broker.id": str(broker_id), "cluster.id": cluster_id}
        write_properties(fs, meta_path, meta, _META_SEPARATOR)
        return cluster_id
    meta = read_properties(fs, meta_path, _META_SEPARATOR, ("broker.id", "cluster.id"))
    if meta["broker.id"] != str(broker_id):
        owner = meta["broker.id"]
        raise ForeignDirectoryError(meta_path, f"belongs to broker {owner}, not {broker_id}")
    return meta["cluster.id"]
