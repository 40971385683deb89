"""The names of new partitions in a data directory: created at once, synced together when necessary.

If a power failure takes a partition without records, it is created again, because the coordination
tree says that it exists. So nothing waits for the disk when a partition is created. The first flush of
its log makes its directory durable before the recovery point moves, in the flusher's thread; one sync
of the data directory serves all partitions created before it.

Invariant: a partition whose recovery point is above 0 survives a power failure under its name, with
its topic id.

Called by `log_directory.py`. Knows nothing of logs.
"""

from __future__ import annotations

import threading

from echoless.storage import paths
from echoless.storage.file_system import FileSystem


class PartitionNames:
    """Tracks which names a power failure would take. Any thread may call it."""

    def __init__(self, fs: FileSystem, data_dir: str) -> None:
        self._fs = fs
        self._data_dir = data_dir
        self._lock = threading.Lock()
        self._made = 0
        self._synced = 0

    def made(self) -> int:
        """Notes that a directory was created; returns its number for `sync`."""
        with self._lock:
            self._made += 1
            return self._made

    def sync(self, directory: str, number: int) -> None:
        """Makes a partition's directory durable: its metadata, and its name. Raises `StorageError`.

        The names inside it are synced along with the files.
        """
        metadata = self._fs.open(paths.join(directory, paths.PARTITION_METADATA))
        try:
            metadata.sync()
        finally:
            metadata.close()
        with self._lock:
            if self._synced < number:
                made = self._made
                self._fs.sync_directory(self._data_dir)
                self._synced = made
