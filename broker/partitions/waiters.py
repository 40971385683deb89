"""Requests that wait on a partition: each is a future, and is resolved once.

`Waiters` holds all of one partition. Produce requests wait until an offset is reached
(`OffsetWaiters`, the lowest first); fetches of consumers and followers wait for the next event
(`EventWaiters`) and then look again.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools


class OffsetWaiters:
    """Futures by the offset that resolves them. Belongs to one event loop."""

    __slots__ = ("_abandoned", "_ticket", "heap")

    def __init__(self) -> None:
        self._abandoned = 0
        """Futures that were abandoned since the heap was last cleared of them, at most half of it."""
        self.heap: list[tuple[int, int, asyncio.Future[None]]] = []
        """Empty: no one waits, and `reached` need not be called. Only this class changes it."""
        self._ticket = itertools.count()

    def wait_for(self, offset: int) -> asyncio.Future[None]:
        """A future that is done once `reached` is called with at least `offset`."""
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self.heap, (offset, next(self._ticket), future))
        return future

    def __len__(self) -> int:
        return len(self.heap)

    def abandon(self, future: asyncio.Future[None]) -> None:
        """Drops `future`: no one waits for it. Abandoned futures never exceed half of all."""
        if future.cancel():
            self._abandoned += 1
            if 2 * self._abandoned > len(self.heap):
                self.heap = [entry for entry in self.heap if not entry[2].done()]
                heapq.heapify(self.heap)
                self._abandoned = 0

    def reached(self, offset: int) -> None:
        """Resolves every future at or below `offset`."""
        heap = self.heap
        while heap and heap[0][0] <= offset:
            future = heapq.heappop(heap)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """Fails every future with `error`: nothing more will be reached."""
        heap, self.heap = self.heap, []
        self._abandoned = 0
        for _, _, future in heap:
            if not future.done():
                future.set_exception(error)
                future.exception()  # looked at, in case the client that waits is gone meanwhile


class EventWaiters(dict["asyncio.Future[None]", None]):
    """Futures that the next event resolves, in order of arrival. Belongs to one event loop.

    A dictionary as an ordered set: an append finds out at no cost that no one waits for it.
    """

    __slots__ = ()

    def add(self, future: asyncio.Future[None]) -> None:
        """Resolves `future` at the next event; `remove` it when it is no longer needed."""
        self[future] = None

    def remove(self, future: asyncio.Future[None]) -> None:
        self.pop(future, None)

    def wake(self) -> None:
        """Resolves every future: there is something new to look at."""
        futures = list(self)
        self.clear()
        for future in futures:
            if not future.done():
                future.set_result(None)


class Waiters:
    """All requests that wait on one partition."""

    __slots__ = ("append", "commit", "data", "flush")

    def __init__(self) -> None:
        self.commit = OffsetWaiters()
        """Produce requests that wait for the high watermark (acks=-1)."""
        self.flush = OffsetWaiters()
        """Produce requests (acks=1) and fetchers that wait until this replica's log is durable."""
        self.data = EventWaiters()
        """Consumers' fetches that wait for the high watermark to move."""
        self.append = EventWaiters()
        """Followers' fetches that wait for an append."""

    def acknowledgement(self, offset: int, *, by_all: bool) -> asyncio.Future[None]:
        """Done once everything below `offset` is committed (`by_all`), or durable on this replica.

        Raises `KafkaError` from the future when leadership ends first.
        """
        return (self.commit if by_all else self.flush).wait_for(offset)

    def abandon(self, acknowledgement: asyncio.Future[None], *, by_all: bool) -> None:
        """Drops a future returned by `acknowledgement`: the client no longer waits for it."""
        (self.commit if by_all else self.flush).abandon(acknowledgement)

    def fail(self, error: Exception) -> None:
        """Fails the produce requests with `error`, and lets all fetches look again."""
        self.commit.fail(error)
        self.flush.fail(error)
        self.wake_fetches()

    def wake_fetches(self) -> None:
        """Lets the fetches of consumers and of followers look again."""
        self.data.wake()
        self.append.wake()
