"""The wait of one fetch, of a consumer or a follower: for the next event of its partitions, or its deadline.

One timer for all of it, and one future for each event: `asyncio.wait` would make both anew each time.
Called by `broker/records/fetch.py` and `broker/native/replica_fetch.py`, which put `arrived` among the
waiters of their partitions and take it out again.
"""

from __future__ import annotations

import asyncio


class LongPoll:
    """Belongs to one event loop."""

    __slots__ = ("_timer", "arrived", "is_over")

    def __init__(self) -> None:
        self.arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when anything has reached a partition since it was read."""
        self.is_over = False
        self._timer: asyncio.TimerHandle | None = None

    def renew(self) -> None:
        """Begins to wait for the next event."""
        self.arrived = asyncio.get_running_loop().create_future()

    def end_after(self, seconds: float) -> None:
        """Sets the deadline; `cancel` has to follow."""
        self._timer = asyncio.get_running_loop().call_later(max(seconds, 0), self._expire)

    def cancel(self) -> None:
        """Drops the deadline: the fetch is answered, or its client is gone."""
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self.is_over = True
        if not self.arrived.done():
            self.arrived.set_result(None)
