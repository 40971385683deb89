"""Pieces of work that wait for the disk, such as one flush for each of many logs.

The disk makes many syncs that are asked for at once in hardly more time than one of them: the file
system writes its journal for all. So many pieces are done by several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

Work = Sequence[Callable[[], None]]
RunAll = Callable[[Work], None]

THREADS: Final = 8
FEW: Final = 4
"""Up to this many pieces are done one by one: starting threads would cost more."""


def one_by_one(work: Work) -> None:
    """Does all pieces in order; an error is raised at once, and the rest is not done."""
    for piece in work:
        piece()


def in_threads(work: Work) -> None:
    """Does all pieces, several at a time; raises the first error when all have ended.

    A process that may start no thread does them more slowly.
    """
    if len(work) <= FEW:
        one_by_one(work)
        return
    left = _Left(work)
    helpers = [threading.Thread(target=left.do, name=f"disk work {n}") for n in range(1, THREADS)]
    started = []
    for helper in helpers:
        try:
            helper.start()
        except RuntimeError:
            break  # the process may have no more threads: those that there are do all of it
        started.append(helper)
    left.do()
    for helper in started:
        helper.join()
    if left.errors:
        raise left.errors[0]


class _Left:
    """The pieces not yet begun, from which each thread takes the next."""

    def __init__(self, work: Work) -> None:
        self.errors: list[BaseException] = []
        self._pieces = iter(work)
        self._turn = threading.Lock()

    def do(self) -> None:
        """Does pieces until none is left; an error ends only its own piece."""
        while True:
            with self._turn:
                piece = next(self._pieces, None)
            if piece is None:
                return
            try:
                piece()
            except BaseException as error:  # noqa: BLE001 - raised by `in_threads`
                self.errors.append(error)
