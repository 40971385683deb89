"""How many bytes of requests may be in the broker at once, over all connections.

A connection reserves the size of a large frame before it reads it and gives it back when the
request has been worked on. Whoever finds the budget spent stops reading its socket until bytes
come back, first come first served: memory stays flat and TCP tells the clients to slow down.

Invariant: `_used <= bytes_max`, or exactly one reservation larger than `bytes_max` is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class MemoryBudget:
    """A counter of bytes with a queue of those who wait for some."""

    __slots__ = ("_bytes_max", "_used", "_waiting")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._used = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def used(self) -> int:
        return self._used

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for bytes to come back."""
        return bool(self._waiting)

    def reserve(self, size: int, on_reserved: Callable[[], None]) -> bool:
        """Takes `size` bytes and returns True, or queues and calls `on_reserved` once they are taken."""
        if not self._waiting and self._fits(size):
            self._used += size
            return True
        self._waiting.append((size, on_reserved))
        return False

    def release(self, size: int) -> None:
        """Gives bytes back and serves the queue."""
        self._used -= size
        assert self._used >= 0, "more request memory was given back than taken"
        while self._waiting and self._fits(self._waiting[0][0]):
            waiting_size, on_reserved = self._waiting.popleft()
            self._used += waiting_size
            on_reserved()

    def _fits(self, size: int) -> bool:
        # A frame above the whole budget still gets through, alone.
        return self._used == 0 or self._used + size <= self._bytes_max
