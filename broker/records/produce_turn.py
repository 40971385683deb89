"""The order of one connection's appends while the records of some are opened in a thread.

Requests of a connection are processed as they arrive. One whose batch is opened in the thread is
appended later, so those after it wait for it: batches of a producer must reach the log in sequence
order. Those that waited are appended together, so the next request finds no one waiting: a task for
each takes two to three times as long. Waiting for an acknowledgement is not part of a turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from echoless.broker.network.loop_turn import LOOP_TURN
from echoless.broker.network.request import Peer

_Appended = TypeVar("_Appended")
_Append = Callable[[], Coroutine[Any, Any, _Appended]]


def in_turn(peer: Peer, append: _Append[_Appended]) -> asyncio.Future[_Appended]:
    """Runs `append` after all earlier appends of this connection. Cancelling its future cancels it.

    The call, not the first `await`, determines the position in the order.
    """
    if peer.appending is None:
        peer.appending = _Line(peer)
    line: _Line = peer.appending
    return line.add(append)


class _Line:
    """The appends of a connection that wait for a thread, or for one that does."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._waiting: deque[tuple[_Append[Any], asyncio.Future[Any]]] = deque()
        self._current: asyncio.Future[Any] | None = None
        """The future of the append in progress."""
        self._is_given_up = False
        """Whether that is being cancelled because its future was."""
        self._task = asyncio.ensure_future(self._serve())

    def add(self, append: _Append[_Appended]) -> asyncio.Future[_Appended]:
        appended: asyncio.Future[_Appended] = asyncio.get_running_loop().create_future()
        appended.add_done_callback(self._give_up_if_cancelled)
        self._waiting.append((append, appended))
        return appended

    def _give_up_if_cancelled(self, appended: asyncio.Future[Any]) -> None:
        if appended.cancelled() and appended is self._current:
            self._is_given_up = True
            self._task.cancel()

    async def _serve(self) -> None:
        ends_at = LOOP_TURN.ends_at(LOOP_TURN.clock())
        try:
            while self._waiting:
                append, self._current = self._waiting.popleft()
                if not self._current.cancelled():
                    await self._settle(append, self._current)
                self._current = None
                if LOOP_TURN.clock() > ends_at:
                    await asyncio.sleep(0)
                    ends_at = LOOP_TURN.ends_at(LOOP_TURN.clock())
        finally:
            self._peer.appending = None
            for _, appended in self._waiting:
                appended.cancel()

    async def _settle(self, append: _Append[Any], appended: asyncio.Future[Any]) -> None:
        """Gives `appended` the result of `append`, or its error. Raises `CancelledError` if the line is cancelled."""
        try:
            result = await append()
        except asyncio.CancelledError:
            appended.cancel()
            if self._is_given_up:
                self._is_given_up = False
                self._task.uncancel()
            if self._task.cancelling():
                raise
        except Exception as error:  # noqa: BLE001 - belongs to whoever waits for it
            if not appended.cancelled():
                appended.set_exception(error)
        else:
            if not appended.cancelled():
                appended.set_result(result)
