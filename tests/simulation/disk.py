"""A machine's disk: `MemoryFileSystem`, with an eye on every byte that a broker appends to a log.

The checkers read logs from here, as bytes, and hear of each append when it happens: a batch that is
cut off later, or was written by a leader that should not have been one, has been seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from echoless.protocol.record_batch import Buffer
from echoless.storage.file_system import File
from tests.fakes.memory_file_system import MemoryFileSystem, Survival

LogObserver = Callable[[str, str, bytes], None]
"""Sees an append: node, path of the log file, bytes."""


class WatchedFileSystem:
    """`FileSystem`; every call but `open` goes straight to the disk."""

    def __init__(
        self, disk: MemoryFileSystem, node: str, observe: LogObserver | None = None
    ) -> None:
        self.disk = disk
        self.node = node
        self.observe = observe

    def __getattr__(self, name: str) -> Any:
        return getattr(self.disk, name)

    def open(self, path: str, *, create: bool = False) -> File:
        """See `FileSystem.open`."""
        file = self.disk.open(path, create=create)
        if self.observe is None or not path.endswith(".log"):
            return file
        return _WatchedFile(file, self)

    def after_power_loss(self, survive: Survival, seed: int) -> WatchedFileSystem:
        """The disk as the next start finds it."""
        return WatchedFileSystem(self.disk.after_power_loss(survive, seed), self.node, self.observe)

    def release_locks(self) -> None:
        """The process that held them is gone."""
        self.disk._locks.clear()

    def read_logs(self, data_dir: str) -> dict[str, list[tuple[int, bytes]]]:
        """Per partition directory: its segments' base offsets and bytes, in order."""
        paths = {name: f"{data_dir}/{name}" for name in self.disk.list_directory(data_dir)}
        return {
            name: self.read_segments(path)
            for name, path in paths.items()
            if self.disk.is_directory(path) and not name.endswith("-delete")
        }

    def read_segments(self, path: str) -> list[tuple[int, bytes]]:
        """The base offsets and bytes of the segments in a partition's directory, in order."""
        return [
            (int(name[:20]), self.disk.read_bytes(f"{path}/{name}"))
            for name in self.disk.list_directory(path)
            if name.endswith(".log")
        ]


class _WatchedFile:
    """A log file whose appends are seen."""

    __slots__ = ("_file", "_system", "append", "close", "path", "read", "sync", "truncate")

    def __init__(self, file: File, system: WatchedFileSystem) -> None:
        self._file = file
        self._system = system
        self.path = file.path
        self.append = self._append
        self.read = file.read
        self.truncate = file.truncate
        self.sync = file.sync
        self.close = file.close

    @property
    def size(self) -> int:
        return self._file.size

    def _append(self, buffers: Sequence[Buffer]) -> int:
        position = self._file.append(buffers)
        observe = self._system.observe
        if observe is not None:
            observe(self._system.node, self.path, b"".join(buffers))
        return position
