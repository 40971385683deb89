"""A separate disk for one broker, which can be made full: a tmpfs whose size shrinks to its use."""

from __future__ import annotations

import atexit
import os
import subprocess
from pathlib import Path
from typing import Self

_SIZE_BYTES = 8 * 2**30
"""Far more than a run writes; only written data takes memory."""
_FILL_TRIES_MAX = 50


class DiskError(Exception):
    """It cannot be mounted or filled; carries the output of `mount`."""


class SmallDisk:
    """Mounted at `directory` until `close`. Needs root."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._mount("-t", "tmpfs", "-o", f"size={_SIZE_BYTES}", "tmpfs")
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fill(self) -> None:
        """Leaves no room: every write that needs a new page fails with ENOSPC."""
        for _ in range(_FILL_TRIES_MAX):
            usage = os.statvfs(self.directory)
            used = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
            try:
                self._mount("-o", f"remount,size={used}")
            except DiskError:
                continue  # more was written meanwhile: a disk never shrinks below its use
            return
        raise DiskError("it is written faster than it can be made full")

    def make_room(self) -> None:
        """Restores the size from before `fill`."""
        self._mount("-o", f"remount,size={_SIZE_BYTES}")

    def close(self) -> None:
        """Unmounts it, with everything on it; may be called repeatedly."""
        atexit.unregister(self.close)
        subprocess.run(["umount", "-l", self.directory], capture_output=True, check=False)

    def _mount(self, *arguments: str) -> None:
        command = ["mount", *arguments, str(self.directory)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise DiskError(result.stderr.strip())
