"""The deadlines of all requests that wait for their acknowledgement, on one timer.

Nearly every request is answered long before its deadline, so adding and discarding one has to be cheap: a
timer for each took as long as the rest of the wait. Deadlines are rounded up to the next tick; those of a tick
share a set. The timer is left as it is when its tick has become empty, and then finds the next one.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

TICKS_PER_S: Final = 64


class Expiring(Protocol):
    """A request with a deadline."""

    def expire(self) -> None:
        """Called when the deadline has passed, unless it was discarded before."""


class Deadlines:
    """Deadlines of one broker. Belongs to one event loop."""

    def __init__(self) -> None:
        self._due: dict[int, dict[Expiring, None]] = {}
        """By tick; no tick is empty. A dictionary as an ordered set."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop, once there was a deadline: to ask for it takes a system call in Python 3.11."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_tick = 0
        """The tick that the timer is set to: at or before the first one that is due."""

    def __len__(self) -> int:
        return sum(map(len, self._due.values()))

    def add(self, request: Expiring, seconds: float) -> int:
        """Sets the deadline of a request; returns its tick, for `discard`."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        tick = int((loop.time() + max(seconds, 0)) * TICKS_PER_S) + 1
        requests = self._due.get(tick)
        if requests is None:
            requests = self._due[tick] = {}
            if self._timer is None or tick < self._timer_tick:
                self._set_timer(tick)
        requests[request] = None
        return tick

    def discard(self, request: Expiring, tick: int) -> None:
        """Drops a deadline, if it has not passed."""
        requests = self._due.get(tick)
        if requests is not None:
            requests.pop(request, None)
            if not requests:
                del self._due[tick]

    def _set_timer(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_tick = tick
        self._timer = asyncio.get_running_loop().call_at(tick / TICKS_PER_S, self._expire)

    def _expire(self) -> None:
        """Expires what is due, also what became due while the loop was busy."""
        self._timer = None
        last = max(self._timer_tick, int(asyncio.get_running_loop().time() * TICKS_PER_S))
        for tick in sorted(tick for tick in self._due if tick <= last):
            for request in self._due.pop(tick):
                request.expire()
        if self._due and self._timer is None:
            self._set_timer(min(self._due))
