"""Persistent watches, made of ZooKeeper's, which fire once.

A watch that has fired is armed again before its listeners are notified: what is read after a call
is then at least as new as the watch, and the next change fires it again. Arming is a round trip to
the server; several changes that happen meanwhile share one call. Where the server arms many watches in one
request, those that are waiting for the answer to the one before share the next: a change of a thousand nodes
costs a few.

The watches of a connection end with it: `restore` is called for each new connection.

Knows nothing of the server: its creator passes `arm`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from echoless.broker.essential_task import reported_task
from echoless.broker.tree.node_tree import (
    Cancel,
    ConnectionLostError,
    CoordinationError,
    WatchCallback,
)
from echoless.broker.tree.watches import Listeners

Fired = Callable[..., None]
"""Called with whether the node has been deleted; without an argument if that is not known."""
Arm = Callable[[str, Fired], Awaitable[None]]
"""Sets a one-shot watch on a path; it calls the same `Fired` once, on the event loop."""
ArmMany = Callable[[Mapping[str, Fired], Collection[str]], Awaitable[None]]
"""Sets many, of nodes that exist and (the second argument) of nodes that do not. It calls the `Fired` of a node that is
not as was expected."""

ARMING_INFLIGHT_MAX: Final = 50
"""Watches that are armed at the same time after a reconnection."""

_log = logging.getLogger(__name__)


class OneShotWatches:
    """The watches of one kind: of nodes, or of their children."""

    def __init__(self, arm: Arm, arm_many: ArmMany | None = None) -> None:
        """`arm_many`: for all that are to be armed when the one before has returned."""
        self._arm = arm
        self._arm_many = arm_many
        self._gathered: dict[str, _Watched] = {}
        """The next watches to be armed together."""
        self._gathering: asyncio.Future[None] | None = None
        """Done when these are armed."""
        self._arming = asyncio.Lock()
        self._watched: dict[str, _Watched] = {}
        self._rearming: set[asyncio.Task[None]] = set()

    async def watch(self, path: str, callback: WatchCallback) -> Cancel:
        """Registers and arms. Raises what arming raises, and then has registered nothing."""
        watched = self._watched.get(path)
        if watched is None:
            watched = self._watched[path] = _Watched(path, self._fired)
        cancel = watched.listeners.add(callback)
        try:
            await self._arm_soon(watched)
        except BaseException:
            cancel()
            raise
        return cancel

    async def _arm_soon(self, watched: _Watched) -> None:
        """Arms the watch, together with all others that wait for it."""
        if self._arm_many is None:
            await self._arm(watched.path, watched.fired)
            return
        if self._gathering is None:
            self._gathering = asyncio.ensure_future(self._arm_gathered(self._arm_many))
        self._gathered[watched.path] = watched
        await asyncio.shield(self._gathering)

    async def _arm_gathered(self, arm_many: ArmMany) -> None:
        await asyncio.sleep(0)  # others ask in the same step of the loop
        async with self._arming:
            gathered, self._gathered, self._gathering = self._gathered, {}, None
            if len(gathered) > 1:
                await arm_many(*_to_arm(gathered.values()))
                return
            for path, watched in gathered.items():
                await self._arm(path, watched.fired)

    async def restore(self) -> None:
        """Arms every watch on a new connection and notifies it, since changes may have been missed.

        Some at a time, so that other requests get their turn.
        """
        for watched in list(self._watched.values()):
            if not watched.listeners:
                del self._watched[watched.path]
        left = list(self._watched.values())
        while left:
            some, left = left[:ARMING_INFLIGHT_MAX], left[ARMING_INFLIGHT_MAX:]
            if self._arm_many is None:
                await asyncio.gather(*map(self._arm_again_and_notify, some))
                continue
            try:
                await self._arm_many(*_to_arm(some))
            except ConnectionLostError:
                return  # the next connection begins anew
            for watched in some:
                watched.listeners.notify(watched.path)

    def _fired(self, watched: _Watched, is_gone: bool) -> None:
        watched.is_gone = is_gone
        if watched.listeners:
            task = reported_task(self._arm_again_and_notify(watched), f"watch of {watched.path}")
            self._rearming.add(task)
            task.add_done_callback(self._rearming.discard)
        elif self._watched.get(watched.path) is watched:
            del self._watched[watched.path]

    async def _arm_again_and_notify(self, watched: _Watched) -> None:
        try:
            await self._arm_soon(watched)
        except ConnectionLostError:
            return  # `restore` follows when there is a connection
        except CoordinationError:
            _log.exception("%s cannot be watched any longer", watched.path)
        watched.listeners.notify(watched.path)


class _Watched:
    """One path, with its listeners and the one function that its watches fire."""

    def __init__(self, path: str, fired: Callable[[_Watched, bool], None]) -> None:
        self.path = path
        self.listeners: Listeners[str] = Listeners()
        self.is_gone = False
        """Whether the node did not exist when the watch fired last."""
        # Always the same object, by which kazoo knows that a path is armed already.
        self.fired: Fired = lambda is_gone=False: fired(self, is_gone)


def _to_arm(watches: Collection[_Watched]) -> tuple[dict[str, Fired], set[str]]:
    """The arguments of `ArmMany`."""
    fired = {watched.path: watched.fired for watched in watches}
    return fired, {watched.path for watched in watches if watched.is_gone}
