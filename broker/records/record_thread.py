"""One thread that opens records when there are too many to open on the event loop.

A batch of a few KB may hold a million records. Decompression releases the interpreter; the walk over
records does not, but yields it every `SWITCH_INTERVAL_S` (set by `serve.py`). There is one thread,
because each further one would make the loop wait for one more turn, and so that only one batch at a
time is expanded in memory.

Addresses take turns: one that has a thousand batches opened delays another by a single batch. The queue is
bounded by the connections: each has one request here at a time (`produce_turn.py`).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from broker.network.fair_queue import FairQueue
from broker.threads import Workers

SWITCH_INTERVAL_S: Final = 0.0005
"""How long the loop waits for the interpreter while the thread works; Python's default is 5 ms."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class _Turn(asyncio.Future[None]):
    """The turn of one call; done when the thread is free for it."""

    def __init__(self, address: str) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.address = address


class RecordThread:
    """The thread of one broker."""

    def __init__(self) -> None:
        self._thread = Workers("records", 1)
        self._is_busy = False
        self._waiting: FairQueue[_Turn] = FairQueue()

    def start(self) -> None:
        """Starts the thread; otherwise the first call does. Raises `OutOfThreadsError`."""
        self._thread.start()

    async def run(
        self,
        address: str,
        function: Callable[_Arguments, _Result],
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Result:
        """Returns or raises what `function` does. It must touch nothing that the loop changes.

        `address` is the host on whose behalf it is called.
        """
        await self._wait_for_turn(address)
        try:
            return await self._thread.run(functools.partial(function, *args, **kwargs))
        finally:
            self._pass_on()

    async def _wait_for_turn(self, address: str) -> None:
        if not self._is_busy:
            self._is_busy = True
            return
        turn = _Turn(address)
        self._waiting.push(turn)
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.discard(turn)
            if turn.done() and not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Gives the thread to the next address, or notes that it is free."""
        turn = self._waiting.head()
        while turn is not None:
            self._waiting.serve(turn)
            if not turn.done():
                turn.set_result(None)
                return
            turn = self._waiting.head()
        self._is_busy = False

    def stop(self) -> None:
        """Drops calls that have not started; their callers are gone."""
        self._thread.stop()
        while (turn := self._waiting.head()) is not None:
            self._waiting.serve(turn)
            turn.cancel()
