"""Requests that wait until an offset is reached: the lowest first, each of them woken once."""

from __future__ import annotations

import asyncio
import heapq
import itertools


class OffsetWaiters:
    """Futures by the offset that resolves them. Belongs to one event loop."""

    __slots__ = ("_heap", "_ticket")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._ticket = itertools.count()

    def wait_for(self, offset: int) -> asyncio.Future[None]:
        """Done once `reached` was called with at least `offset`."""
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._heap, (offset, next(self._ticket), future))
        return future

    def reached(self, offset: int) -> None:
        """Resolves every future at or below `offset`."""
        heap = self._heap
        while heap and heap[0][0] <= offset:
            future = heapq.heappop(heap)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """Nothing will be reached any more: every future raises `error`."""
        heap, self._heap = self._heap, []
        for _, _, future in heap:
            if not future.done():
                future.set_exception(error)
