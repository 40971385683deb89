"""The proof that this broker's session is alive, and until when, by the broker's own clock.

The coordinator ends a session once it has heard nothing of it for the whole timeout. But in an
ensemble one server decides and another one answers: twice per tick, the latter reports which clients
it has heard from, and half a tick is at most a quarter of the timeout (ZooKeeper's timeouts are two
ticks or more). So when a request sent at T is answered, the deciding server knows at least of those
that were *answered* before T minus a quarter. The proof counts from when such a request was sent, or, before there is
one, from when the session was asked for, which the deciding server itself has granted; and it leaves a margin for
clocks that run at different rates. That a client is connected proves nothing: it may call itself so for most of the
timeout after the last answer.

The request is a change that changes nothing (a check), because the deciding server has to take part
in it: reads are answered even by a server that has lost all the others.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final, NamedTuple

from echoless.broker.tree.node_tree import (
    ANY_VERSION,
    Cancel,
    Check,
    CoordinationError,
    MultiFailedError,
    NodeTree,
    SessionState,
)

PROBES_PER_TIMEOUT: Final = 8
REPORT_LAG: Final = 1 / 4
"""The delay until the deciding server hears of a request; like the others, a share of the timeout."""
CLOCK_MARGIN: Final = 1 / 12
_NEVER: Final = -math.inf


class _Answered(NamedTuple):
    """A request that was answered, by the loop's time."""

    sent: float
    answered: float


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
        """The session to prove."""
        self._timer: asyncio.TimerHandle | None = None
        self._doubt_callbacks: dict[object, Callable[[], None]] = {}
        self._proof_callbacks: dict[object, Callable[[], None]] = {}
        self._restarted = asyncio.Event()
        self._proved_until = math.inf if math.isinf(tree.session_timeout_s) else _NEVER
        """In the loop's time."""
        self._unproved_since = self._loop.time()
        """When the last proof ran out, in the loop's time; stale while there is a proof."""
        self._answered_session_id = 0
        """The session of the requests below; it may not count yet."""
        self._answered: list[_Answered] = []
        """Oldest first; none that is older than what the deciding server knows of."""

    @property
    def is_proved(self) -> bool:
        return self._loop.time() < self._proved_until

    @property
    def unproved_s(self) -> float:
        """The seconds since there was last a proof; 0 while there is one."""
        return 0.0 if self.is_proved else self._loop.time() - self._unproved_since

    def on_doubt(self, callback: Callable[[], None]) -> Cancel:
        """Calls back whenever the proof runs out; the callback must not block or raise."""
        return _listen(self._doubt_callbacks, callback)

    def on_proof(self, callback: Callable[[], None]) -> Cancel:
        """Calls back whenever there is a proof again; the callback must not block or raise."""
        return _listen(self._proof_callbacks, callback)

    def restart(self) -> None:
        """Begins to prove the tree's present session; a new session starts without proof."""
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
            pass  # no such node: an answer nevertheless
        except CoordinationError:
            return
        is_lost = self._tree.session_state is SessionState.LOST
        if session_id == self._tree.session_id and not is_lost:
            self._note_answer(sent)
            if session_id == self._session_id:
                self._prove()

    async def _pause(self, duration_s: float) -> None:
        try:
            async with asyncio.timeout(duration_s):
                await self._restarted.wait()
            self._restarted.clear()
        except TimeoutError:
            pass

    def _note_answer(self, sent: float) -> None:
        """Adds a request that the present session's server has answered just now."""
        if self._answered_session_id != self._tree.session_id:
            self._answered_session_id = self._tree.session_id
            self._answered = [_Answered(self._tree.session_asked_at, _NEVER)]
        self._answered.append(_Answered(sent, self._loop.time()))
        surely_reported = sent - REPORT_LAG * self._tree.session_timeout_s
        while len(self._answered) > 1 and self._answered[1].answered <= surely_reported:
            del self._answered[0]

    def _prove(self) -> None:
        """Extends the proof by what the deciding server surely knows of."""
        timeout_s = self._tree.session_timeout_s
        until = self._answered[0].sent + (1 - CLOCK_MARGIN) * timeout_s
        if until <= self._loop.time():
            return
        is_new = self._timer is None
        if self._timer is not None:
            self._timer.cancel()
        self._proved_until = until
        self._timer = self._loop.call_at(until, self._disprove)
        if is_new:
            for callback in list(self._proof_callbacks.values()):
                callback()

    def _disprove(self) -> None:
        if self._forget_proof():
            for callback in list(self._doubt_callbacks.values()):
                callback()

    def _forget_proof(self) -> bool:
        """Drops the proof; returns whether one existed."""
        if self._timer is None:
            return False
        self._timer.cancel()
        self._timer, self._proved_until = None, _NEVER
        self._unproved_since = self._loop.time()
        return True

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._disprove()


def _listen(callbacks: dict[object, Callable[[], None]], callback: Callable[[], None]) -> Cancel:
    key = object()
    callbacks[key] = callback

    def cancel() -> None:
        callbacks.pop(key, None)

    return cancel
