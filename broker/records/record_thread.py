"""One thread that opens records when there are too many to open on the event loop.

A batch of a few KB may hold a million records. Decompression releases the interpreter; the walk over
records does not, but yields it every `SWITCH_INTERVAL_S` (set by `serve.py`). There is one thread,
because each further one would make the loop wait for one more turn, and so that only one batch at a
time is expanded in memory.

Addresses take turns. The queue is bounded by the connections: each has one request here at a time
(`broker/network/order.py`).
"""

from __future__ import annotations

from typing import Final

from echoless.broker.network.fair_workers import FairWorkers

SWITCH_INTERVAL_S: Final = 0.0005
"""Time that the loop waits for the interpreter while the thread works; Python's default is 5 ms."""


class RecordThread(FairWorkers):
    """The thread of one broker."""

    def __init__(self) -> None:
        super().__init__("records", 1)
