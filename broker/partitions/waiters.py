"""Requests that wait until an offset is reached: the lowest first, each of them woken once."""

from __future__ import annotations

import asyncio
import heapq
import itertools


class OffsetWaiters:
    """Futures by the offset that resolves them. Belongs to one event loop."""

    __slots__ = ("_abandoned", "_heap", "_ticket")

    def __init__(self) -> None:
        self._abandoned = 0
        """Futures that were abandoned since the heap was last cleared of them, at most half of it."""
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._ticket = itertools.count()

    def wait_for(self, offset: int) -> asyncio.Future[None]:
        """A future that is done once `reached` is called with at least `offset`."""
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._heap, (offset, next(self._ticket), future))
        return future

    def __len__(self) -> int:
        return len(self._heap)

    def abandon(self, future: asyncio.Future[None]) -> None:
        """Drops `future`: no one waits for it. Abandoned futures never exceed half of all."""
        if future.cancel():
            self._abandoned += 1
            if 2 * self._abandoned > len(self._heap):
                self._heap = [entry for entry in self._heap if not entry[2].done()]
                heapq.heapify(self._heap)
                self._abandoned = 0

    def reached(self, offset: int) -> None:
        """Resolves every future at or below `offset`."""
        heap = self._heap
        while heap and heap[0][0] <= offset:
            future = heapq.heappop(heap)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """Fails every future with `error`: nothing more will be reached."""
        heap, self._heap = self._heap, []
        self._abandoned = 0
        for _, _, future in heap:
            if not future.done():
                future.set_exception(error)
                future.exception()  # looked at, in case the client that waits is gone meanwhile
