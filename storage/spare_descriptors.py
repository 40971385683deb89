"""Descriptors kept in reserve, so that work on files ends well when the process has no more of them.

Running out of descriptors is no failure of the disk: what was begun has to be finished, and what is
new can be refused. An operation that finds none left gets one of the spares; while spares are missing
the process counts as short of descriptors, and no new file is opened that could wait.

Spares are taken and given back by whichever thread works on a file: lists do both atomically.
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
    """At most `count` descriptors that stand for nothing."""

    def __init__(self, count: int = 0) -> None:
        self._count = count
        self._spares: list[int] = []
        self._refill()

    @property
    def is_complete(self) -> bool:
        """Whether all of them are there; takes back what is missing if that is possible now."""
        return len(self._spares) >= self._count or self._refill()

    def run(self, operation: Callable[[], Result]) -> Result:
        """What `operation` returns, with spares given up for it as long as it finds no descriptor.

        It is begun again each time. Raises its `OSError` when there are no more spares.
        """
        while True:
            try:
                return operation()
            except OSError as error:
                if not is_lack_of_descriptors(error) or not self._give_up_one():
                    raise

    def close(self) -> None:
        """Gives all of them up for good."""
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
