"""Removal of files gives way to whatever a client waits for."""

from __future__ import annotations

import asyncio
from typing import Any

from echoless.broker.partitions.disk_queue import DiskQueue
from echoless.broker.partitions.removal import Removal
from echoless.storage.file_system import StorageError


def fail(error: StorageError) -> None:
    raise error


class Logs:
    """A log directory that has not failed."""

    failure: StorageError | None = None


class Files:
    """Files of two slices; counts the slices that were removed."""

    def __init__(self) -> None:
        self.removed = 0

    def remove_some(self) -> bool:
        self.removed += 1
        return self.removed < 2


def removal_beside(disk: DiskQueue) -> Removal:
    logs: Any = Logs()
    assigned: Any = None
    return Removal(
        logs, assigned, disk, files_after_s=0, retire=lambda _key, _id: None, on_failure=fail
    )


async def test_no_file_is_removed_while_directories_are_made() -> None:
    """Both cost the disk the same, and only one of them has a client that waits."""
    disk = DiskQueue("disk", fail)
    made = asyncio.Event()

    async def make() -> None:
        await made.wait()

    files: Any = Files()
    disk.submit(make)
    removal = removal_beside(disk)
    removal.sweep(files)
    await asyncio.sleep(0.02)
    assert files.removed == 0
    made.set()
    await removal.swept()
    assert files.removed == 2


async def test_closing_does_not_wait_for_files_that_are_not_due() -> None:
    """The next start removes them."""
    disk = DiskQueue("disk", fail)
    removal = removal_beside(disk)
    files: Any = Files()
    removal.sweep(files, after_s=3600)
    await asyncio.wait_for(removal.close(), 30)
    assert files.removed == 0
