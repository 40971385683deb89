"""Files of the ledger on any file system: listed, read, created once, deleted.

Everything depends on `create`: of several attempts to create the same file exactly one succeeds, and a file that
can be read is complete. How each file system guarantees this:

* a local or mounted directory: the content is written and synced under another name, which is then
  linked to its own; a link never replaces a file;
* HDFS: the same with a rename, which HDFS refuses if the target exists.

Object stores cannot do it through pyarrow, and are refused unless the caller guarantees that no two attempts ever
run at once. Tasks have no JVM, so these are pyarrow's file systems, not Hadoop's.
"""

from __future__ import annotations

import errno
import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from pyarrow import fs

from echoless.pipeline.exactly_once.errors import LedgerError, OptionError

_RENAMES_WITHOUT_REPLACING: Final = ("hdfs", "viewfs")
_LOCAL: Final = "file"
_RETRY_LIMIT_S: Final = 20
_MESSAGE_MAX: Final = 300
"""Characters of a file system's message that are shown: some list every path that they have tried."""
_NEEDS: Final = {
    "hdfs": "; hdfs:// needs libhdfs, a JVM and Hadoop's CLASSPATH on every machine with executors",
    "viewfs": "; viewfs:// needs libhdfs, a JVM and Hadoop's CLASSPATH on every machine with executors",
}
_NO_HARD_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


class LedgerFiles(Protocol):
    """Named files. Names are relative, with slashes. All methods raise `LedgerError` on I/O errors."""

    def list(self, directory: str) -> list[str]:
        """Lists the names in a directory in order; none if there is no such directory."""

    def read(self, name: str) -> bytes:
        """Returns the content of a file."""

    def create(self, name: str, data: bytes) -> bool:
        """Creates the file if there is none of this name; returns whether it did."""

    def delete(self, name: str) -> None:
        """Deletes the file, if it exists."""


def open_ledger_files(uri: str, *, has_single_writer: bool = False) -> LedgerFiles:
    """Opens the files at a path or URI. Raises `OptionError` if they cannot be created conditionally."""
    scheme, separator, rest = uri.partition(":")
    if not separator or "/" in scheme or scheme == _LOCAL:
        return LocalFiles(Path(_local_path(rest) if scheme == _LOCAL else uri))
    if scheme not in _RENAMES_WITHOUT_REPLACING and not has_single_writer:
        raise OptionError(
            f"ledger {uri}: {scheme} cannot create a file only where there is none, and two attempts "
            "at once would both continue; use HDFS or a mounted directory, or, if speculation is off "
            "and the query is never started twice, set ledgerSingleWriter=true"
        )
    try:
        system, path = fs.FileSystem.from_uri(_limited(scheme, uri))
    except (OSError, ValueError) as error:
        needs = _NEEDS.get(scheme, "")
        raise OptionError(f"ledger {uri}: {_first_line(error)}{needs}") from error
    return RemoteFiles(system, path)


def _limited(scheme: str, uri: str) -> str:
    """Returns the URI with a limit for repetitions, which last a quarter of an hour by default."""
    if scheme not in ("gs", "gcs") or "retry_limit_seconds" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}retry_limit_seconds={_RETRY_LIMIT_S}"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:_MESSAGE_MAX]


def absolute_location(uri: str) -> str:
    """Makes a path absolute, so that it means the same in any working directory; a URI stays as it is."""
    scheme, separator, _ = uri.partition(":")
    return uri if separator and "/" not in scheme else str(Path(uri).absolute())


def _local_path(rest: str) -> str:
    """Returns the path in a file URI; `/a` and `///a` are the same."""
    return "/" + rest.lstrip("/")


class LocalFiles:
    """Files in a local directory, or in one that every machine has mounted."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def list(self, directory: str) -> list[str]:
        try:
            found = os.scandir(self._root / directory)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _failed(error) from error
        with found:
            return sorted(entry.name for entry in found if not entry.name.startswith("."))

    def read(self, name: str) -> bytes:
        try:
            return (self._root / name).read_bytes()
        except OSError as error:
            raise _failed(error) from error

    def create(self, name: str, data: bytes) -> bool:
        target = self._root / name
        unique = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            _make_directory(target.parent)
            _write_synced(unique, data)
            try:
                target.hardlink_to(unique)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno in _NO_HARD_LINKS:
                    raise _no_hard_links(target.parent) from error
                raise
            finally:
                unique.unlink()
            _sync_directory(target.parent)
        except OSError as error:
            raise _failed(error) from error
        return True

    def delete(self, name: str) -> None:
        with suppress(OSError):
            (self._root / name).unlink()


class RemoteFiles:
    """Files in a file system of pyarrow."""

    def __init__(self, system: Any, root: str) -> None:
        self._system = system
        self._root = root.rstrip("/")

    def list(self, directory: str) -> list[str]:
        selector = fs.FileSelector(f"{self._root}/{directory}", allow_not_found=True)
        try:
            found = self._system.get_file_info(selector)
        except OSError as error:
            raise _failed(error) from error
        return sorted(one.base_name for one in found if not one.base_name.startswith("."))

    def read(self, name: str) -> bytes:
        try:
            with self._system.open_input_stream(f"{self._root}/{name}") as file:
                return bytes(file.read())
        except OSError as error:
            raise _failed(error) from error

    def create(self, name: str, data: bytes) -> bool:
        target = f"{self._root}/{name}"
        directory, _, base = target.rpartition("/")
        unique = f"{directory}/.{base}.{uuid.uuid4().hex}"
        try:
            if self._exists(target):
                return False
            self._system.create_dir(directory, recursive=True)
            with self._system.open_output_stream(unique) as file:
                file.write(data)
            return self._rename(unique, target)
        except OSError as error:
            raise _failed(error) from error

    def delete(self, name: str) -> None:
        with suppress(OSError):
            self._system.delete_file(f"{self._root}/{name}")

    def _rename(self, unique: str, target: str) -> bool:
        try:
            self._system.move(unique, target)
        except OSError:
            with suppress(OSError):
                self._system.delete_file(unique)
            if self._exists(target):
                return False
            raise
        return True

    def _exists(self, path: str) -> bool:
        return bool(self._system.get_file_info(path).type is not fs.FileType.NotFound)


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _make_directory(path: Path) -> None:
    """Creates the directory and its parents, and syncs each: without that a crash may lose file and directory."""
    if not path.is_dir():
        _make_directory(path.parent)
        path.mkdir(exist_ok=True)
        _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _no_hard_links(directory: Path) -> LedgerError:
    return LedgerError(
        f"{directory}: this file system has no hard links, by which a file of the ledger is created only where there "
        "is none: set ledgerLocation to a local disk, NFS or HDFS"
    )


def _failed(error: OSError) -> LedgerError:
    return LedgerError(f"the ledger cannot be reached: {_first_line(error)}")
