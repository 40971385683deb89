"""The pace at which appended batches are shown while only consoles follow.

A follower costs the broker 30 us a batch, and no one can read thousands of rows a second. So a console sees a
burst of `BURST_MAX` appends and `PER_SECOND` afterwards; the others are counted, and cost nothing. Refusals, repeats
and faults are always shown. Single owner: the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

BURST_MAX: Final = 500
PER_SECOND: Final = 200
_TICK_S: Final = 0.1
_PER_TICK: Final = int(PER_SECOND * _TICK_S)


class Pace:
    """The appends that may still be shown now. `on_room` is called when there is room again."""

    __slots__ = ("_on_room", "_timer", "left")

    def __init__(self, on_room: Callable[[], None]) -> None:
        self.left = BURST_MAX
        self._on_room = on_room
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def stop(self) -> None:
        self._timer.cancel()

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)
        self.left = min(BURST_MAX, self.left + _PER_TICK)
        self._on_room()
