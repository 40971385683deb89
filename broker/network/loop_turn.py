"""How long requests may run in one turn of the event loop, each of them and all together.

One request, or the requests that one connection has pipelined, get `TURN_S` before others are served.
A turn of the loop has many of them when many clients ask for much at once. So once they have taken
`CROWDED_S` in this turn, each that follows does one step (a frame, a row) and goes on in a later turn:
the client that asks for little waits for the steps of the others, not for their turns.

Only what takes longer than `NOTABLE_S` is counted, so that the usual request pays nothing for this.
"""

from __future__ import annotations

import asyncio
from typing import Final

TURN_S: Final = 0.004
"""How long one request or connection may run before others get their turn."""
CROWDED_S: Final = 3 * TURN_S
"""How long all of them may, in one turn of the loop, before each gets one step only."""
NOTABLE_S: Final = 0.0005


class LoopTurn:
    """What the requests of this turn of the running loop have taken so far."""

    __slots__ = ("_loop", "_used_s")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop whose turn is counted; None if nothing is."""
        self._used_s = 0.0

    def ends_at(self, now_s: float) -> float:
        """When a request that begins now has to yield; its first step may take it beyond that."""
        if self._used_s < CROWDED_S or self._loop is not asyncio.get_running_loop():
            return now_s + TURN_S
        return now_s

    def count(self, taken_s: float) -> None:
        """Counts what a request has taken; the next turn of the loop begins with nothing."""
        if taken_s < NOTABLE_S:
            return
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._used_s = loop, 0.0
            loop.call_soon(self._end)
        self._used_s += taken_s

    def _end(self) -> None:
        self._loop, self._used_s = None, 0.0


LOOP_TURN: Final = LoopTurn()
"""The turn of the one loop that this process runs."""
