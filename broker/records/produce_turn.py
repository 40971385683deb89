"""The order of one connection's appends while the records of some are opened in a thread.

Requests of a connection are processed as they arrive. One whose batch is opened in the thread is
appended later, so those after it wait for it: batches of a producer must reach the log in sequence
order. Waiting for an acknowledgement is not part of a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from broker.network.request import Peer

_Appended = TypeVar("_Appended")


def in_turn(
    peer: Peer, append: Callable[[], Coroutine[Any, Any, _Appended]]
) -> asyncio.Future[_Appended]:
    """Runs `append` after all earlier appends of this connection.

    The call, not the first `await`, determines the position in the order.
    """
    before = peer.appending
    task = asyncio.ensure_future(_append_after(before, append))
    peer.appending = task

    def leave(_: asyncio.Future[_Appended]) -> None:
        if peer.appending is task:
            peer.appending = None

    task.add_done_callback(leave)
    return task


async def _append_after(
    before: asyncio.Future[Any] | None, append: Callable[[], Coroutine[Any, Any, _Appended]]
) -> _Appended:
    if before is not None:
        await asyncio.wait((before,))
    return await append()
