"""The partition directories that a start finds, and those that it should have found.

Nothing with records is removed here: a directory is opened, set aside (`strays.py`), or the start is
refused. A directory without records whose `partition.metadata` is missing or damaged is what is left of
a creation that was cut short, and is removed.

Called by `log_directory.py`, which opens the logs.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable

from echoless.storage import paths
from echoless.storage.accepted_loss import with_remedy
from echoless.storage.directory_checkpoints import DirectoryCheckpoints, PartitionOffsets
from echoless.storage.file_system import CorruptLogError, FileSystem, StorageError
from echoless.storage.partition_metadata import read_topic_id
from echoless.storage.properties_file import PropertiesError
from echoless.storage.strays import Stray, set_aside_unopened

Partition = tuple[str, int]

logger = logging.getLogger(__name__)


class PartitionDirectories:
    """The directories in a data directory that has just been locked, and what its checkpoints know."""

    def __init__(self, fs: FileSystem, data_dir: str, checkpoints: DirectoryCheckpoints) -> None:
        """Raises `StorageError` if a checkpoint file is damaged."""
        self._fs = fs
        self._data_dir = data_dir
        self._checkpoints = checkpoints
        self._names = fs.list_directory(data_dir)
        self.known = checkpoints.read()

    def find(self, now_ms: int, *, is_tail_safe: bool) -> dict[Partition, uuid.UUID]:
        """The topic ids of the partitions that can be opened. Raises `CorruptLogError`."""
        found = {}
        for name in self._names:
            path = paths.join(self._data_dir, name)
            key = paths.parse_partition_directory(name)
            if key is None or not self._fs.is_directory(path):
                continue
            try:
                found[key] = read_topic_id(self._fs, path)
            except StorageError as error:
                self._give_up_half_created(key, error, now_ms, is_tail_safe=is_tail_safe)
        return found

    def _give_up_half_created(
        self, key: Partition, error: StorageError, now_ms: int, *, is_tail_safe: bool
    ) -> None:
        """Removes what a power failure can have left of a partition; raises for any other `error`.

        A partition that no flush covered may be lost in part. Without records there is nothing to
        keep. Records that were never flushed, of a partition whose topic is not known for certain,
        are set aside.
        """
        path = paths.partition_directory(self._data_dir, *key)
        names = [name for name in self._fs.list_directory(path) if paths.parse_offset_file(name)]
        has_records = any(self._fs.read_bytes(paths.join(path, name)) for name in names)
        if self.known.of(key).recovery_point or (has_records and is_tail_safe):
            raise self._refusal(key, error) from error
        if not has_records:
            logger.warning("removing %s, which was being created: %s", path, error)
            self._fs.remove_tree(path)
            return
        reason = f"the power failed before its first flush: {error}"
        stray = set_aside_unopened(self._fs, self._data_dir, key, reason, now_ms)
        logger.error("%s is set aside as %s: %s", path, stray.name, reason)

    def _refusal(self, key: Partition, error: StorageError) -> CorruptLogError:
        reason, remedy = str(error).removeprefix(f"{error.path}: "), "Bring a copy back"
        if isinstance(error, PropertiesError):
            reason, remedy = error.reason, error.remedy or remedy
        command = f"echoless strays set-aside {self._data_dir} {key[0]}-{key[1]}"
        return CorruptLogError(
            error.path, 0, f"{reason}. {remedy}; or stop the broker and run: {command}"
        )

    def drop_gone(self, found: Collection[Partition], strays: Iterable[Stray]) -> list[str]:
        """Drops deleted partitions, and those set aside, from the checkpoints.

        Returns the directories of deleted partitions that are still there. Raises `CorruptLogError` if
        any other partition that the checkpoints know has no directory, `StorageError`.
        """
        deleted = [name for name in self._names if paths.is_deleted_directory(name)]
        gone = self.known.partitions.difference(found)
        for key in gone:
            self._check_not_missing(key, deleted, strays)
        if gone:
            self._checkpoints.drop(gone)
        return [paths.join(self._data_dir, name) for name in deleted]

    def _check_not_missing(
        self, key: Partition, deleted: Iterable[str], strays: Iterable[Stray]
    ) -> None:
        # Until its first flush, which raises the recovery point, a power failure may take all of it.
        offsets: PartitionOffsets = self.known.of(key)
        is_flushed = offsets.recovery_point or offsets.log_start
        if not is_flushed or any(paths.is_deleted_from(name, *key) for name in deleted):
            return
        if any(stray.accounts_for(key, offsets) for stray in strays):
            return
        path = paths.partition_directory(self._data_dir, *key)
        reason = (
            f"the directory is missing, though the checkpoints know offsets up to {max(offsets)}"
        )
        raise with_remedy(CorruptLogError(path, 0, reason), path)
