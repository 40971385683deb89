"""Pieces of work that wait for the disk, such as one flush for each of many logs.

The disk makes many syncs that are asked for at once in hardly more time than one of them: the file
system writes its journal for all. So many pieces are done by several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

Work = Sequence[Callable[[], None]]
RunAll = Callable[[Work], None]

THREADS: Final = 8
FEW: Final = 4
"""So many are done one by one: starting threads would cost more."""


def one_by_one(work: Work) -> None:
    """Does all pieces in their order; raises what one of them raises, the rest undone."""
    for piece in work:
        piece()


def in_threads(work: Work) -> None:
    """Does all pieces, several at a time; raises the first error when all have ended."""
    if len(work) <= FEW:
        one_by_one(work)
        return
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - no start needs it

    with ThreadPoolExecutor(THREADS, thread_name_prefix="disk") as pool:
        futures = [pool.submit(piece) for piece in work]
    for future in futures:
        future.result()
