"""Files of the ledger in a local directory, or in one that every machine has mounted.

The content is written and synced under another name, which is then linked to its own; a link never replaces a file.
"""

from __future__ import annotations

import errno
import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

from echoless.pipeline.exactly_once.errors import LedgerError, unreachable

_NO_HARD_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


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
            raise unreachable(error) from error
        with found:
            return sorted(entry.name for entry in found if not entry.name.startswith("."))

    def read(self, name: str) -> bytes:
        try:
            return (self._root / name).read_bytes()
        except OSError as error:
            raise unreachable(error) from error

    def find(self, name: str) -> bytes | None:
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreachable(error) from error

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
            raise unreachable(error) from error
        return True

    def delete(self, name: str) -> None:
        with suppress(OSError):
            (self._root / name).unlink()


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
