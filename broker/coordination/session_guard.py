"""Until when this broker's session surely lives, by the broker's own clock.

The coordinator ends a session that it has not heard of for the whole timeout. So a request that was
answered proves the session from the moment it was *sent*: not for the whole timeout, since
* the server that answers may not have told the one that decides yet: that one knows of the request
  before, a probe interval earlier, and hears of news twice a tick; the timeout has two ticks at least.
  That takes 1/6 + 1/4 of the timeout (ZooKeeper; it takes nothing where there is one server);
* the clocks of two machines run at slightly different rates.
Half of the timeout is left. The probe is a change that changes nothing (a check), because it must be
decided by the majority: a read is answered by a server that has lost all the others, too.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

from broker.coordination.node_tree import (
    ANY_VERSION,
    Cancel,
    Check,
    CoordinationError,
    MultiFailedError,
    NodeTree,
    SessionState,
)

PROOF_SHARE: Final = 1 / 2
"""Of the session's timeout: so long proves one answer, from when its request was sent."""
PROBES_PER_TIMEOUT: Final = 6
_NEVER: Final = -math.inf


class SessionGuard:
    """The proof of one session; of the next one after `restart`. Made and used in one event loop.

    Invariant: while `is_proved`, the session lives on the server.
    """

    def __init__(self, tree: NodeTree, path: str) -> None:
        """`path`: the node that is checked; an answer proves the session whether it exists or not."""
        self._tree = tree
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._session_id = tree.session_id
        self._timer: asyncio.TimerHandle | None = None
        self._doubt_callbacks: dict[object, Callable[[], None]] = {}
        self._restarted = asyncio.Event()
        self._proved_until = math.inf if math.isinf(tree.session_timeout_s) else _NEVER
        """In the loop's time."""

    @property
    def is_proved(self) -> bool:
        return self._loop.time() < self._proved_until

    def on_doubt(self, callback: Callable[[], None]) -> Cancel:
        """Calls back once each time that the proof runs out; it must not block or raise."""
        key = object()
        self._doubt_callbacks[key] = callback

        def cancel() -> None:
            self._doubt_callbacks.pop(key, None)

        return cancel

    def restart(self) -> None:
        """Proves the tree's present session from now on; a new one starts without proof."""
        if self._session_id != self._tree.session_id:
            self._disprove()
        self._session_id = self._tree.session_id
        self._restarted.set()

    async def run(self) -> None:
        """Probes until cancelled; without probes there is no proof. An endless session needs none."""
        if math.isinf(self._tree.session_timeout_s):
            return
        cancel = self._tree.on_session(self._on_session)
        try:
            while True:
                await self._probe()
                await self._pause(self._tree.session_timeout_s / PROBES_PER_TIMEOUT)
        finally:
            cancel()
            self._forget_proof()

    async def _probe(self) -> None:
        sent, session_id = self._loop.time(), self._tree.session_id
        try:
            await self._tree.multi([Check(self._path, ANY_VERSION)])
        except MultiFailedError:
            pass  # there is no such node: an answer all the same
        except CoordinationError:
            return
        is_lost = self._tree.session_state is SessionState.LOST
        if session_id == self._session_id == self._tree.session_id and not is_lost:
            self._prove(sent + self._tree.session_timeout_s * PROOF_SHARE)

    async def _pause(self, duration_s: float) -> None:
        try:
            async with asyncio.timeout(duration_s):
                await self._restarted.wait()
            self._restarted.clear()
        except TimeoutError:
            pass

    def _prove(self, until: float) -> None:
        self._proved_until = until
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(until, self._disprove)

    def _disprove(self) -> None:
        if self._forget_proof():
            for callback in list(self._doubt_callbacks.values()):
                callback()

    def _forget_proof(self) -> bool:
        """Whether there was one."""
        if self._timer is None:
            return False
        self._timer.cancel()
        self._timer, self._proved_until = None, _NEVER
        return True

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._disprove()
