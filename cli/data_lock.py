"""The lock of a data directory, for commands that change one while its broker is stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from echoless.cli.errors import CommandError
from echoless.storage import paths
from echoless.storage.file_system import LockHeldError, StorageError
from echoless.storage.os_file_system import OsFileSystem


@contextmanager
def data_directory(data_dir: str, command: str) -> Iterator[tuple[OsFileSystem, str]]:
    """The file system and the path of a directory, locked so that no broker can have it open.

    A `StorageError` in the block becomes a `CommandError`.
    """
    fs, path = OsFileSystem(), data_dir.rstrip("/")
    if not fs.exists(paths.join(path, paths.META_PROPERTIES)):
        raise CommandError(f"{path} is not a data directory: it has no {paths.META_PROPERTIES}")
    try:
        lock = fs.lock(paths.join(path, paths.LOCK), command)
    except LockHeldError as error:
        raise CommandError(f"{path} is in use by {error.holder}; stop the broker first") from error
    try:
        yield fs, path
    except StorageError as error:
        raise CommandError(str(error)) from error
    finally:
        lock.release()


def parse_partition(text: str) -> tuple[str, int]:
    """Parses `TOPIC-PARTITION`. Raises `CommandError`."""
    key = paths.parse_partition_directory(text)
    if key is None:
        raise CommandError(f"{text!r} is not a partition; write TOPIC-PARTITION, such as orders-0")
    return key
