"""A file system that records every sync on the event loop's thread: no request may wait for one.

A sync takes from a fraction of a millisecond to seconds on a shared disk; on the loop it stops
every connection for as long. Waiting for the disk belongs into a thread.
"""

from __future__ import annotations

import threading
import traceback
from typing import Any

from echoless.protocol.record_batch import Buffer
from echoless.storage.file_system import File, FileSystem

_FRAMES_SHOWN = 8


class SyncGuard:
    """Forwards everything to another `FileSystem`. Call `watch` and `unwatch` on the loop's thread."""

    def __init__(self, inner: FileSystem) -> None:
        self._inner = inner
        self._loop_thread: int | None = None
        self.found: list[str] = []
        """The syncs on the loop, with their call sites."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def watch(self) -> None:
        """Starts recording: requests are served from now on."""
        self._loop_thread = threading.get_ident()

    def unwatch(self) -> None:
        self._loop_thread = None

    def check(self) -> None:
        """Fails if anything was synced on the loop."""
        assert not self.found, "synced on the event loop:\n" + "\n".join(self.found)

    def note(self, path: str) -> None:
        if threading.get_ident() == self._loop_thread:
            frames = traceback.format_stack()[-_FRAMES_SHOWN:-2]
            self.found.append(f"{path}\n{''.join(frames)}")

    def open(self, path: str, *, create: bool = False) -> File:
        return _GuardedFile(self._inner.open(path, create=create), self)

    def sync_directory(self, path: str) -> None:
        self.note(path)
        self._inner.sync_directory(path)

    def write_atomic(self, path: str, data: Buffer, *, sync_name: bool = True) -> None:
        self.note(path)
        self._inner.write_atomic(path, data, sync_name=sync_name)


class _GuardedFile:
    """A `File` whose syncs are recorded."""

    __slots__ = ("_file", "_guard", "append", "close", "path", "read", "truncate")

    def __init__(self, file: File, guard: SyncGuard) -> None:
        self._file = file
        self._guard = guard
        self.path = file.path
        self.append = file.append
        self.read = file.read
        self.truncate = file.truncate
        self.close = file.close

    @property
    def size(self) -> int:
        return self._file.size

    def sync(self) -> None:
        self._guard.note(self.path)
        self._file.sync()
