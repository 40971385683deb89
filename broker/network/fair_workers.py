"""Threads that addresses share by turns: one that asks for a thousand calls delays another by a single one.

Calls wait on the event loop; as many run as there are threads. What bounds the queue is the caller's business.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from echoless.broker.network.fair_queue import FairQueue
from echoless.broker.threads import Workers

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class _Turn(asyncio.Future[None]):
    """The turn of one call; done when a thread is free for it."""

    def __init__(self, address: str) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.address = address


class FairWorkers:
    """Threads by the name `name`, `count` of them."""

    def __init__(self, name: str, count: int) -> None:
        self._threads = Workers(name, count)
        self._free = count
        self._waiting: FairQueue[_Turn] = FairQueue()

    def start(self) -> None:
        """Starts the threads; otherwise the first call does. Raises `OutOfThreadsError`."""
        self._threads.start()

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
            return await self._threads.run(functools.partial(function, *args, **kwargs))
        finally:
            self._pass_on()

    async def _wait_for_turn(self, address: str) -> None:
        if self._free:
            self._free -= 1
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
        """Gives a thread that has become free to the next address, or notes that it is free."""
        turn = self._waiting.head()
        while turn is not None:
            self._waiting.serve(turn)
            if not turn.done():
                turn.set_result(None)
                return
            turn = self._waiting.head()
        self._free += 1

    def stop(self) -> None:
        """Drops calls that have not started; their callers are gone."""
        self._threads.stop()
        while (turn := self._waiting.head()) is not None:
            self._waiting.serve(turn)
            turn.cancel()
