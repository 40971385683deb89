"""The file system as storage sees it: two small interfaces, and the errors that they raise.

`FileSystem` and `File` are all that `storage/` knows of the operating system.
`storage/os_file_system.py` implements them, `tests/fakes/memory_file_system.py` is a fake that loses
power on command, and both keep the contract in `tests/contracts/file_system.py`. Paths are plain
strings; every failure is a `StorageError`.

Durability is that of POSIX: the bytes of a file survive a power failure once `File.sync` has
returned, and its name (created, renamed, removed) once `sync_directory` of its directory has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from echoless.protocol.record_batch import Buffer


class StorageError(Exception):
    """The disk failed or is full. The log directory goes offline; `path` is what was touched."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class OutOfDescriptorsError(StorageError):
    """The process or the machine is out of file descriptors; the disk is fine.

    Nothing has changed, and a later attempt may succeed.
    """


class CorruptLogError(StorageError):
    """Bytes that were safely on disk are damaged or missing; the log cannot be served as it is."""

    def __init__(self, path: str, position: int, message: str) -> None:
        super().__init__(path, f"damaged at position {position}: {message}")
        self.position = position
        self.reason = message


class LockHeldError(StorageError):
    """Another process holds the lock; `holder` is what it wrote into the lock file."""

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(path, f"is locked by {holder}")
        self.holder = holder


class File(Protocol):
    """One open file. One owner appends, reads and truncates; `sync` may run in another thread."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """Bytes in the file, without those of a failed append."""

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Writes all buffers at the end, in one system call; returns the position of the first.

        After a failure (`StorageError`) `size` is unchanged, and the file is cut back to it before
        the next append at the latest.
        """

    def read(self, position: int, size: int) -> bytes:
        """Reads `size` bytes from `position` on; fewer only at the end of the file."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Returns once everything appended or truncated before the call is on disk."""

    def close(self) -> None: ...


class FileLock(Protocol):
    """A lock held until `release`, or until the process ends."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """Files by path. Every method raises `StorageError` if the system call fails."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens for reading and appending; a missing file is an error unless `create`."""

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def modified_ms(self, path: str) -> int:
        """Returns when the file's bytes last changed, in ms since 1970."""

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Sets what `modified_ms` returns: a copy is as old as what it was copied from."""

    def list_directory(self, path: str) -> list[str]:
        """Returns the names of files and directories, sorted."""

    def make_directory(self, path: str) -> None:
        """Creates the directory and its missing parents; no error if it exists."""

    def remove(self, path: str) -> None:
        """Removes a file; no error if it does not exist."""

    def rename(self, old: str, new: str) -> None:
        """Renames a file (replacing `new`) or a directory."""

    def remove_tree(self, path: str) -> None:
        """Removes a directory and all in it; no error if it does not exist."""

    def sync_directory(self, path: str) -> None: ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: Buffer, *, sync_name: bool = True) -> None:
        """Replaces the whole file, durably: after a crash it holds the old bytes or the new.

        1. Write `path.tmp` and sync it. A crash leaves a stray `.tmp`, overwritten next time.
        2. Rename it to `path`. A crash leaves the old file or the new one.
        3. Sync the directory; without `sync_name` the caller does so. After that it is the new one.
        """

    def can_open(self, count: int) -> bool:
        """Whether `count` more files may be opened and kept open.

        The answer is for new work; work already begun may use the last descriptors of the process.
        """

    def boot_id(self) -> str:
        """Identifies the run of the operating system; empty if it is not known.

        While it is the same, the power has not failed: what was written is there, synced or not.
        """

    def lock(self, path: str, owner: str) -> FileLock:
        """Takes the lock and writes `owner` into it, or raises `LockHeldError` at once."""
