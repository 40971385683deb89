"""Files of a data directory, opened read-only and without a broker.

`storage/` opens segments for writing; a command that inspects a directory must not be able to
change it, nor need permission to. Index files are read here entry by entry, so that a wrong one can
be shown and compared.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from echoless.cli.errors import CommandError
from echoless.protocol.record_batch import Buffer
from echoless.storage import paths
from echoless.storage.file_system import StorageError
from echoless.storage.os_file_system import OsFileSystem

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")
_FILES: Final = OsFileSystem()


class ReadOnlyFile:
    """A `storage` file whose writing methods are disabled. Use it in a `with` block."""

    def __init__(self, path: str) -> None:
        """Raises `StorageError` if the file cannot be read."""
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StorageError(path, f"cannot open: {error.strerror}") from error
        self.size = os.fstat(self._descriptor).st_size

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes from `position`; fewer only at the end of the file."""
        try:
            return os.pread(self._descriptor, size, position)
        except OSError as error:
            raise StorageError(self.path, f"cannot read: {error.strerror}") from error

    def append(self, buffers: Sequence[Buffer]) -> int:
        raise StorageError(self.path, f"is open for reading; {len(buffers)} buffers are not")

    def truncate(self, size: int) -> None:
        raise StorageError(self.path, f"is open for reading and stays longer than {size}")

    def sync(self) -> None:
        return

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class OffsetEntry(NamedTuple):
    """An entry of `.index`: the batch at `position` ends with `offset`."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """An entry of `.timeindex`: nothing up to the batch that ends with `offset` is newer."""

    timestamp: int
    offset: int


def read_offset_entries(path: str, base_offset: int) -> list[OffsetEntry]:
    """Every whole entry, with absolute offsets. Raises `StorageError`."""
    return [
        OffsetEntry(base_offset + relative, position)
        for relative, position in OFFSET_ENTRY.iter_unpack(_whole(path, OFFSET_ENTRY))
    ]


def read_time_entries(path: str, base_offset: int) -> list[TimeEntry]:
    """Every whole entry, with absolute offsets. Raises `StorageError`."""
    return [
        TimeEntry(timestamp, base_offset + relative)
        for timestamp, relative in TIME_ENTRY.iter_unpack(_whole(path, TIME_ENTRY))
    ]


def _whole(path: str, entry: struct.Struct) -> bytes:
    with ReadOnlyFile(path) as file:
        data = file.read(0, file.size)
    if len(data) % entry.size:
        raise StorageError(path, f"{len(data)} bytes are not whole entries of {entry.size}")
    return data


def offset_files(directory: str, suffix: str) -> list[tuple[int, str]]:
    """(offset, path) of the files of one kind in a partition's directory, ascending."""
    files = (paths.parse_offset_file(name) for name in _FILES.list_directory(directory))
    return sorted(
        (file.offset, paths.offset_file(directory, file.offset, suffix))
        for file in files
        if file is not None and file.suffix == suffix
    )


def refuse_if_in_use(data_dir: str) -> None:
    """Raises `CommandError` if a broker has the directory open. Leaves the lock as it is."""
    path = paths.join(data_dir, paths.LOCK)
    try:
        with Path(path).open(encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = lock.read().strip() or "a broker"
                raise CommandError(f"{data_dir} is in use by {holder}; stop it first") from None
    except FileNotFoundError:
        return
