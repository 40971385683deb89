"""Descriptors kept in reserve, so that work that has begun can finish when the process runs out.

Running out of descriptors is not a disk failure: work that has begun has to be finished, and new work
can be refused. An operation that finds no free descriptor gets one of the spares; while spares are
missing, the process counts as short of descriptors, and no file is opened that could wait.

Any thread that works on a file may take and return spares: lists do both atomically.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final, TypeVar

Result = TypeVar("Result")

_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})


def is_lack_of_descriptors(error: OSError) -> bool:
    """Whether the process, or the whole machine, has as many open files as it may have."""
    return error.errno in _NO_DESCRIPTORS


class SpareDescriptors:
    """Up to `count` open descriptors of /dev/null."""

    def __init__(self, count: int = 0) -> None:
        self._count = count
        self._spares: list[int] = []
        self._refill()

    @property
    def is_complete(self) -> bool:
        """Whether none is missing; reopens the missing ones if that is possible now."""
        return len(self._spares) >= self._count or self._refill()

    def run(self, operation: Callable[[], Result]) -> Result:
        """Runs `operation`, and again with one spare less each time it finds no descriptor.

        Raises its `OSError` when no spare is left.
        """
        while True:
            try:
                return operation()
            except OSError as error:
                if not is_lack_of_descriptors(error) or not self._give_up_one():
                    raise

    def close(self) -> None:
        """Closes all spares for good."""
        self._count = 0
        while self._give_up_one():
            pass

    def _give_up_one(self) -> bool:
        try:
            os.close(self._spares.pop())
        except IndexError:
            return False
        return True

    def _refill(self) -> bool:
        try:
            while len(self._spares) < self._count:
                self._spares.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return False
        return True
