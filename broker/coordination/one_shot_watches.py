"""Watches that stay, made of ZooKeeper's, which fire once.

A watch that has fired is armed again before anybody is told: so what is read after a call is at least
as new as the watch, and the next change fires it again. Arming is a round trip to the server; several
changes that come meanwhile share one call.

A connection that breaks takes its watches along: `arm_all` and then `tell_all` follow each new one.

Knows nothing of the server: who creates it passes `arm`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from broker.coordination.node_tree import (
    Cancel,
    ConnectionLostError,
    CoordinationError,
    WatchCallback,
)
from broker.coordination.watches import Listeners

Fired = Callable[[], None]
Arm = Callable[[str, Fired], Awaitable[None]]
"""Sets a one-shot watch on a path; it calls the same `Fired` once, on the event loop."""

_log = logging.getLogger(__name__)


class OneShotWatches:
    """The watches of one kind: of nodes, or of their children."""

    def __init__(self, arm: Arm) -> None:
        self._arm = arm
        self._watched: dict[str, _Watched] = {}
        self._rearming: set[asyncio.Task[None]] = set()

    async def watch(self, path: str, callback: WatchCallback) -> Cancel:
        """Registers and arms. Raises what arming raises, and then has registered nothing."""
        watched = self._watched.get(path)
        if watched is None:
            watched = self._watched[path] = _Watched(path, self._fired)
        cancel = watched.listeners.add(callback)
        try:
            await self._arm(path, watched.fired)
        except BaseException:
            cancel()
            raise
        return cancel

    async def arm_all(self) -> None:
        """Arms every watch on a new connection. Raises `ConnectionLostError`."""
        for watched in list(self._watched.values()):
            if not watched.listeners:
                del self._watched[watched.path]
        await asyncio.gather(*map(self._arm_again, list(self._watched.values())))

    def tell_all(self) -> None:
        """Tells everybody: nobody knows what was missed."""
        for watched in self._watched.values():
            watched.listeners.tell(watched.path)

    def _fired(self, watched: _Watched) -> None:
        if watched.listeners:
            task = asyncio.get_running_loop().create_task(self._arm_again_and_tell(watched))
            self._rearming.add(task)
            task.add_done_callback(self._rearming.discard)
        elif self._watched.get(watched.path) is watched:
            del self._watched[watched.path]

    async def _arm_again_and_tell(self, watched: _Watched) -> None:
        try:
            await self._arm_again(watched)
        except ConnectionLostError:
            return  # `arm_all` and `tell_all` follow when there is a connection
        watched.listeners.tell(watched.path)

    async def _arm_again(self, watched: _Watched) -> None:
        try:
            await self._arm(watched.path, watched.fired)
        except ConnectionLostError:
            raise
        except CoordinationError:
            _log.exception("%s cannot be watched any longer", watched.path)


class _Watched:
    """One path, with its listeners and the one function that its watches fire."""

    def __init__(self, path: str, fired: Callable[[_Watched], None]) -> None:
        self.path = path
        self.listeners: Listeners[str] = Listeners()
        # Always the same object, by which kazoo knows that a path is armed already.
        self.fired: Fired = lambda: fired(self)
