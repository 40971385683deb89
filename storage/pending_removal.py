"""Deleting partitions together, without the owner's thread waiting for the disk.

    pending = directory.forget(keys)    owner: from now on they are not part of the directory
    pending.run()                       any one thread: afterwards their names may be used again
    while pending.remove_some(): ...    any one thread: removes their files, a bounded number at a time

1. Close the files and rename each directory, then sync the data directory once. A crash before: some
   are still there under their names, and the next start sets them aside.
2. Write the checkpoints without them, once, so that a partition of the same name starts anew.
   Crash: entries without a directory are dropped at the next start.
3. Remove the renamed directories. Crash: removed at the next start.

Called by `log_directory.py`.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from echoless.storage import paths
from echoless.storage.directory_checkpoints import DirectoryCheckpoints
from echoless.storage.file_system import FileSystem
from echoless.storage.log import Log

logger = logging.getLogger(__name__)

REMOVED_AT_ONCE_MAX = 20
"""Directories that one call of `remove_some` removes."""


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class PendingRemoval:
    """Partitions that are no longer part of the directory, but still on disk."""

    logs: list[Log]
    """Emptied by `run`, one by one: to free thousands at once would hold the owner's thread, too."""
    partitions: Mapping[tuple[str, int], uuid.UUID]
    """The topic ids of the partitions; `run` works out the paths, for no loop waits for it."""
    _data_dir: str
    _checkpoints: DirectoryCheckpoints
    _fs: FileSystem
    _doomed: deque[str] = field(default_factory=deque)

    @classmethod
    def of_renamed(
        cls,
        doomed: Iterable[str],
        data_dir: str,
        checkpoints: DirectoryCheckpoints,
        fs: FileSystem,
    ) -> PendingRemoval:
        """Begins at step 3, with directories that an earlier run has renamed."""
        return cls(
            logs=[],
            partitions={},
            _data_dir=data_dir,
            _checkpoints=checkpoints,
            _fs=fs,
            _doomed=deque(doomed),
        )

    def run(self) -> None:
        """Steps 1 and 2. Raises `StorageError`."""
        logger.info(
            "deleting %d partitions, %s first: %d records, %d bytes",
            len(self.logs),
            next((log.name for log in self.logs), "none"),
            sum(log.log_end_offset - log.log_start_offset for log in self.logs),
            sum(log.size_bytes for log in self.logs),
        )
        while self.logs:
            self.logs.pop().abandon()
        for key, topic_id in self.partitions.items():
            path = paths.partition_directory(self._data_dir, *key)
            doomed = paths.deleted_directory(self._data_dir, *key, topic_id.hex)
            self._fs.remove_tree(doomed)  # left by an earlier run that could not remove it
            self._fs.rename(path, doomed)
            self._doomed.append(doomed)
        self._fs.sync_directory(self._data_dir)
        self._checkpoints.drop(self.partitions.keys())

    def remove_some(self) -> bool:
        """Does a bounded part of step 3; returns whether there is more. Raises `StorageError`."""
        for _ in range(min(len(self._doomed), REMOVED_AT_ONCE_MAX)):
            self._fs.remove_tree(self._doomed.popleft())
        return bool(self._doomed)
