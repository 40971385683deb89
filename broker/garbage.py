"""Garbage collection in a broker: what lives long is not looked at again and again.

    Freezer().made(partitions)               for each log that was opened
    Freezer(RECORDS_FROZEN_FROM).made(...)   for records of a coordinator's state that were loaded

A collection holds the event loop for about 0.5 us per object that it looks at, and a partition is about 75
objects: a full collection with 6,000 partitions took 185 ms. Nothing in a partition or its log is part of a
reference cycle, so frozen ones are freed as others are when their topic is deleted. Requests create dozens
of tuples but hardly any cycles.
"""

from __future__ import annotations

import gc
from typing import Final

THRESHOLDS: Final = (10_000, 2, 125)
"""Python's 700 would collect every 50 requests; 50,000 at once took 25 ms."""
START_THRESHOLD: Final = 100_000
"""Objects that a start may make before the first collection. An empty broker makes 30,000, of which 630 are garbage
when it is ready, and collections with Python's threshold took 8 ms of its start. One that waits for ZooKeeper
for hours still collects."""
FROZEN_FROM: Final = 500
"""Partitions that are worth a freeze. Cycles that are garbage by then are never freed: they are few (630 objects were
collected in 120 collections while 6,000 partitions were made), and to collect them first would hold the loop
for 10 to 20 ms."""
RECORDS_FROZEN_FROM: Final = 2_000
"""Records of state that are worth one, four objects or so each: with 100,000 transactional ids a collection in the middle of
their loading held the loop for 195 ms."""


def begin_start() -> None:
    """Puts collections off: a start makes what lives long. Call it before the broker's modules are imported."""
    gc.set_threshold(START_THRESHOLD)


def end_start() -> None:
    """Freezes everything, without a collection, which would take 6 ms of the start; from now on there are some."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


class Freezer:
    """Freezes what was made since the last time, once that is worth it."""

    def __init__(self, worth: int = FROZEN_FROM) -> None:
        """`worth`: things of its kind that are worth a freeze."""
        self._worth = worth
        self._made = 0

    def made(self, count: int) -> None:
        """Counts new things."""
        self._made += count
        if self._made >= self._worth:
            self._made = 0
            gc.freeze()
