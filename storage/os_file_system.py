"""`FileSystem` over the operating system's own calls.

Invariant: a file whose `sync` failed once never reports a successful `sync` again, since the kernel
may have dropped the pages that it could not write.
"""

# Paths are plain strings; pathlib costs time on the start path and adds nothing here.
# ruff: noqa: PTH103, PTH105, PTH108, PTH110, PTH112, PTH116, PTH120, PTH123, PTH208

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import threading
from collections.abc import Iterator, Sequence
from typing import IO, Final

from echoless.protocol.record_batch import Buffer
from echoless.storage.file_system import LockHeldError, OutOfDescriptorsError, StorageError
from echoless.storage.spare_descriptors import SpareDescriptors, is_lack_of_descriptors

_TEMPORARY_SUFFIX: Final = ".tmp"
_FILE_MODE: Final = 0o644
_BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"
_sync_data = getattr(os, "fdatasync", os.fsync)
_write: Final = os.pwritev


class OpenFiles:
    """The number of open files of one file system; several threads open and close them."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def opened(self) -> None:
        with self._lock:
            self.count += 1

    def closed(self) -> None:
        with self._lock:
            self.count -= 1


class OsFile:
    """`File` over a descriptor. Appends go to the tracked size, so torn bytes are overwritten."""

    __slots__ = ("_descriptor", "_has_failed_sync", "_is_torn", "_open_files", "path", "size")

    def __init__(self, path: str, descriptor: int, open_files: OpenFiles) -> None:
        self.path = path
        self._descriptor = descriptor
        self._open_files = open_files
        open_files.opened()
        self.size = os.fstat(descriptor).st_size
        self._is_torn = False
        self._has_failed_sync = False

    def append(self, buffers: Sequence[Buffer]) -> int:
        position = self.size
        size = len(buffers[0]) + len(buffers[1]) if len(buffers) == 2 else sum(map(len, buffers))
        try:
            if self._is_torn:
                self._cut_back()
            written = _write(self._descriptor, buffers, position)
            if written != size:
                self._append_rest(buffers, written)
        except OSError as error:
            self._is_torn = True
            with contextlib.suppress(OSError):
                self._cut_back()
            raise _wrap(self.path, "append", error) from error
        self.size = position + size
        return position

    def _append_rest(self, buffers: Sequence[Buffer], written: int) -> None:
        """Continues after a short write; a full disk reports its error here at the latest."""
        rest = memoryview(b"".join(buffers))[written:]
        position = self.size + written
        while rest:
            count = os.pwrite(self._descriptor, rest, position)
            position += count
            rest = rest[count:]

    def _cut_back(self) -> None:
        os.ftruncate(self._descriptor, self.size)
        self._is_torn = False

    def read(self, position: int, size: int) -> bytes:
        size = min(size, self.size - position)
        if size <= 0:
            return b""
        try:
            data = os.pread(self._descriptor, size, position)
            while len(data) < size:
                more = os.pread(self._descriptor, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise _wrap(self.path, "read", error) from error
        return data

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise _wrap(self.path, "truncate", error) from error
        self.size = size
        self._is_torn = False

    def sync(self) -> None:
        if self._has_failed_sync:
            raise StorageError(self.path, "an earlier sync failed, its pages may be lost")
        try:
            _sync_data(self._descriptor)
        except OSError as error:
            self._has_failed_sync = True
            raise _wrap(self.path, "sync", error) from error

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
            self._open_files.closed()


class OsFileLock:
    """An advisory lock on an open file; the kernel drops it when the process ends, however it ends."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def release(self) -> None:
        self._stream.close()


class OsFileSystem:
    """`FileSystem` over the operating system."""

    def __init__(self, *, spare_descriptors: int = 0, files_max: int | None = None) -> None:
        """Holds `spare_descriptors` in reserve for work that has begun; see `spare_descriptors.py`.

        `files_max`: how many files may be open before the process counts as short of descriptors.
        """
        self._spares = SpareDescriptors(spare_descriptors)
        self._files_max = math.inf if files_max is None else files_max
        self._open_files = OpenFiles()

    def can_open(self, count: int) -> bool:
        return self._open_files.count + count <= self._files_max and self._spares.is_complete

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        with _storage_errors(path, "open"):
            descriptor = self._spares.run(lambda: os.open(path, flags, _FILE_MODE))
            return OsFile(path, descriptor, self._open_files)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        with _storage_errors(path, "set the time of"):
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def modified_ms(self, path: str) -> int:
        with _storage_errors(path, "stat"):
            return os.stat(path).st_mtime_ns // 1_000_000

    def list_directory(self, path: str) -> list[str]:
        with _storage_errors(path, "list"):
            return sorted(self._spares.run(lambda: os.listdir(path)))

    def make_directory(self, path: str) -> None:
        with _storage_errors(path, "create"):
            os.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        with _storage_errors(path, "remove"), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def rename(self, old: str, new: str) -> None:
        with _storage_errors(old, f"rename to {new}"):
            os.replace(old, new)

    def remove_tree(self, path: str) -> None:
        with _storage_errors(path, "remove"), contextlib.suppress(FileNotFoundError):
            self._spares.run(lambda: _remove_tree(path))

    def sync_directory(self, path: str) -> None:
        with _storage_errors(path, "sync"):
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            descriptor = self._spares.run(lambda: os.open(path, flags))
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def read_bytes(self, path: str) -> bytes:
        with _storage_errors(path, "read"), self._spares.run(lambda: open(path, "rb")) as stream:
            return stream.read()

    def write_atomic(self, path: str, data: Buffer, *, sync_name: bool = True) -> None:
        temporary = path + _TEMPORARY_SUFFIX
        with (
            _storage_errors(path, "write"),
            self._spares.run(lambda: open(temporary, "wb")) as stream,
        ):
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        self.rename(temporary, path)
        if sync_name:
            self.sync_directory(os.path.dirname(path) or ".")

    def boot_id(self) -> str:
        try:
            return self.read_bytes(_BOOT_ID_PATH).decode().strip()
        except (StorageError, UnicodeDecodeError):
            return ""

    def lock(self, path: str, owner: str) -> OsFileLock:
        with _storage_errors(path, "lock"):
            stream = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - held until release
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                stream.seek(0)
                holder = stream.read().strip() or "an unknown process"
                stream.close()
                raise LockHeldError(path, holder) from None
            stream.truncate(0)
            stream.write(f"{owner}, process {os.getpid()}\n")
            stream.flush()
            return OsFileLock(stream)


def _wrap(path: str, verb: str, error: OSError) -> StorageError:
    if is_lack_of_descriptors(error):
        return OutOfDescriptorsError(
            path, f"cannot {verb}: {error.strerror}; raise the limit of open files (ulimit -n)"
        )
    return StorageError(path, f"cannot {verb}: {error.strerror or error}")


def _remove_tree(path: str) -> None:
    import shutil  # noqa: PLC0415 - a start removes nothing, and shutil loads the archive formats

    shutil.rmtree(path)


@contextlib.contextmanager
def _storage_errors(path: str, verb: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _wrap(path, verb, error) from error
