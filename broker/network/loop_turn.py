"""Bounds the time of requests in one turn of the event loop, of each and of all together.

One request, or the requests that one connection has pipelined, get `TURN_S` before others are served.
A turn of the loop has many of them when many clients ask for much at once. So once they have taken
`CROWDED_S` in this turn, a connection that receives more waits in line for a later one, and a request
that is handled row by row does one row and continues in a later turn: a client that asks for little
waits no longer than before, and timers and new connections do not wait for all of them.

Only what takes longer than `NOTABLE_S` is counted, so that the usual request pays nothing for this.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

TURN_S: Final = 0.004
"""Time for one request or connection before others get their turn."""
CROWDED_S: Final = 3 * TURN_S
"""Time for all of them in one turn of the loop before the rest waits for a later one."""
NOTABLE_S: Final = 0.0005


class LoopTurn:
    """The time that requests have taken in this turn of the running loop, and who waits for a later one."""

    __slots__ = ("_line", "_line_loop", "_loop", "clock", "used_s")

    def __init__(self) -> None:
        self.clock: Callable[[], float] = time.monotonic
        """The clock of turns; the loop's own may stand still while a callback runs. The simulator replaces it."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop whose turn is counted; None if nothing is."""
        self.used_s = 0.0
        """The time that they have taken in this turn, in seconds; 0 nearly always, and then it is not crowded."""
        self._line: deque[Callable[[], None]] = deque()
        self._line_loop: asyncio.AbstractEventLoop | None = None
        """The loop that serves the line; None if no one waits."""

    @property
    def is_crowded(self) -> bool:
        """Whether the requests of this turn have taken what they may take together."""
        return self.used_s >= CROWDED_S and self._loop is asyncio.get_running_loop()

    def ends_at(self, now_s: float) -> float:
        """When a request that begins now has to yield; its first step may take it beyond that."""
        return now_s if self.used_s and self.is_crowded else now_s + TURN_S

    def count(self, taken_s: float) -> None:
        """Counts what a request has taken; the next turn of the loop begins with nothing."""
        if taken_s < NOTABLE_S:
            return
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self.used_s = loop, 0.0
            loop.call_soon(self._end)
        self.used_s += taken_s

    def wait(self, callback: Callable[[], None]) -> None:
        """Calls `callback` in a later turn, after those that wait already."""
        loop = asyncio.get_running_loop()
        if self._line_loop is not loop:
            self._line.clear()  # an earlier loop has ended, with its connections
            self._line_loop = loop
            loop.call_soon(self._serve_line)
        self._line.append(callback)

    def _serve_line(self) -> None:
        """Calls those that waited before this turn, one of them at least, until it is crowded."""
        try:
            for _ in range(len(self._line)):
                self._line.popleft()()
                if self.is_crowded:
                    break
        finally:
            if self._line:
                asyncio.get_running_loop().call_soon(self._serve_line)
            else:
                self._line_loop = None

    def _end(self) -> None:
        self._loop, self.used_s = None, 0.0


class Reads:
    """The reads of one socket in one step of the loop.

    The loop reads a socket up to 32 times, as long as each read fills the buffer, before it looks at another one, and the
    requests of each are processed before the next. Turns of their own they must not have: a producer of large batches would get
    32 of them, and a follower that is sent what it writes one.
    """

    __slots__ = ("_taken_s", "have_filled_buffer")

    def __init__(self) -> None:
        self.have_filled_buffer = False
        """Whether the last one did."""
        self._taken_s = 0.0

    def end_turn(self, taken_s: float) -> bool:
        """Counts what the requests of a read have taken that filled the buffer; returns whether others come first now."""
        self._taken_s += taken_s
        if self._taken_s < NOTABLE_S:
            return False
        self._taken_s = 0.0
        return True


LOOP_TURN: Final = LoopTurn()
"""The turn of the one loop that this process runs."""
