"""Keys by the time at which someone has to look at them again, so that a round costs what is due.

A time is a promise to look no later: whoever finds at that time that there is still nothing to do gives a new one.
So an event that only moves the moment back, an append for instance, need not tell. Called by the clocks of the
broker; reads no clock itself.
"""

from __future__ import annotations

import heapq
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=tuple[Any, ...])


class DueTimes(Generic[K]):
    """At most one time for each key, the earliest that was given."""

    __slots__ = ("_heap", "_times")

    def __init__(self) -> None:
        self._times: dict[K, float] = {}
        self._heap: list[tuple[float, K]] = []
        """Every key's time, and times that an earlier one has replaced."""

    def by(self, key: K, time: float | None) -> None:
        """Has `pop` return the key at `time`, or earlier; None: never."""
        if time is not None and time < self._times.get(key, float("inf")):
            self._times[key] = time
            heapq.heappush(self._heap, (time, key))

    def pop(self, now: float) -> list[K]:
        """Removes and returns the keys that are due."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            time, key = heapq.heappop(self._heap)
            if self._times.get(key) == time:
                del self._times[key]
                due.append(key)
        return due
