"""A file system that can be made to fail, and the files that it has opened.

Without rules each method *is* that of the wrapped file system: no code of this file runs. A rule
replaces the methods of all open files, and of those opened later.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from echoless.protocol.record_batch import Buffer
from echoless.storage.file_system import File, FileLock, FileSystem

if TYPE_CHECKING:
    from echoless.broker.faults.file_faults import FileFaults


class WatchedFile:
    """A `File` whose `append` and `sync` are those of the wrapped file, or consult the rules first."""

    __slots__ = (
        "__weakref__",
        "_faults",
        "_file",
        "append",
        "close",
        "path",
        "read",
        "sync",
        "truncate",
    )

    append: Callable[[Sequence[Buffer]], int]
    sync: Callable[[], None]

    def __init__(self, file: File, faults: FileFaults | None) -> None:
        self._file = file
        self.path = file.path
        self.read = file.read
        self.truncate = file.truncate
        self.close = file.close
        self.watch(faults)

    # In C, as every append asks for it: a method would cost as much as all the rest of this class.
    size = property(attrgetter("_file.size"))

    def watch(self, faults: FileFaults | None) -> None:
        """Applies these rules from now on, or none."""
        self._faults = faults
        self.append = self._file.append if faults is None else self._append
        self.sync = self._file.sync if faults is None else self._sync

    def _append(self, buffers: Sequence[Buffer]) -> int:
        assert self._faults is not None
        self._faults.before_append(self.path, buffers)
        position = self._file.append(buffers)
        self._faults.after_append(self.path, buffers)
        return position

    def _sync(self) -> None:
        assert self._faults is not None
        self._faults.before_sync(self.path)
        self._file.sync()
        self._faults.after_sync(self.path)


class FaultyFileSystem:
    """A `FileSystem` that wraps another one."""

    def __init__(self, inner: FileSystem) -> None:
        self._inner = inner
        self._faults: FileFaults | None = None
        self._files: weakref.WeakSet[WatchedFile] = weakref.WeakSet()
        self._lock = threading.Lock()
        """Files are opened in threads too, while rules come and go."""
        self.exists = inner.exists
        self.is_directory = inner.is_directory
        self.modified_ms = inner.modified_ms
        self.set_modified_ms = inner.set_modified_ms
        self.list_directory = inner.list_directory
        self.make_directory = inner.make_directory
        self.remove = inner.remove
        self.rename = inner.rename
        self.remove_tree = inner.remove_tree
        self.read_bytes = inner.read_bytes
        self.boot_id = inner.boot_id
        self.can_open = inner.can_open

    def use(self, faults: FileFaults | None) -> None:
        """Applies these rules from now on, or none, to open files too."""
        with self._lock:
            self._faults = faults
            for file in self._files:
                file.watch(faults)

    def open(self, path: str, *, create: bool = False) -> WatchedFile:
        inner = self._inner.open(path, create=create)
        with self._lock:
            file = WatchedFile(inner, self._faults)
            self._files.add(file)
        if self._faults is not None and create:
            self._faults.after_create(path)
        return file

    def sync_directory(self, path: str) -> None:
        if self._faults is not None:
            self._faults.before_sync(path)
        self._inner.sync_directory(path)

    def write_atomic(self, path: str, data: Buffer, *, sync_name: bool = True) -> None:
        if self._faults is not None:
            self._faults.before_replace(self._inner, path, data)
        self._inner.write_atomic(path, data, sync_name=sync_name)

    def lock(self, path: str, owner: str) -> FileLock:
        return self._inner.lock(path, owner)
