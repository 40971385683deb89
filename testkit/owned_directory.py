"""The temporary directory of a broker: deleted with its block, or by a later process if its own was killed.

A lock on a file in it says that it is in use. The broker inherits the lock, so that both have ended once it is free.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

_PREFIX: Final = "echoless-testkit-"
_LOCK: Final = "in-use.lock"

_log = logging.getLogger(__name__)


class OwnedDirectory:
    """A new temporary directory, in use until `cleanup`, or until its process and all that inherit `lock` have ended."""

    def __init__(self) -> None:
        """Removes those of processes that have ended first, once in each process."""
        _remove_abandoned_once(tempfile.gettempdir())
        self._temporary = tempfile.TemporaryDirectory(prefix=_PREFIX)
        self.path = Path(self._temporary.name)
        """The directory, which exists."""
        begun = self.path / f"{_LOCK}.new"
        self.lock = os.open(begun, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        """The descriptor that holds the lock."""
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        begun.rename(self.path / _LOCK)  # nobody sees it without its lock

    def cleanup(self) -> None:
        """Deletes it with what it holds; does nothing the second time."""
        self._temporary.cleanup()
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1

    def __del__(self) -> None:
        if getattr(self, "lock", -1) >= 0:
            os.close(self.lock)


@cache
def _remove_abandoned_once(parent: str) -> None:
    remove_abandoned(Path(parent))


def remove_abandoned(parent: Path) -> list[Path]:
    """Removes this user's directories that nothing has in use any more, and returns them.

    One without a lock is left alone: it is of an older version, or just begun.
    """
    return [path for path in parent.glob(f"{_PREFIX}*") if _remove_if_abandoned(path)]


def _remove_if_abandoned(path: Path) -> bool:
    try:
        if path.lstat().st_uid != os.getuid():
            return False
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path)
    except OSError:
        return False
    finally:
        os.close(lock)
    _log.info("removed %s: the process that has made it was killed", path)
    return True
