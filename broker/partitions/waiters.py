"""Requests that wait on a partition; each is resolved once.

`Waiters` holds all of one partition. Produce requests wait until an offset is reached
(`OffsetWaiters`, the lowest first); fetches of consumers and followers wait for the next event
(`EventWaiters`) and then look again. What a follower waits for is one of these, or a row of its session.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import Any, Protocol


class OffsetWaiter(Protocol):
    """Waits for an offset: a future, or a batch of an acknowledgement, which is lighter."""

    def done(self) -> bool: ...

    def cancel(self) -> bool:
        """Ends the wait; returns False if it was done."""

    def set_result(self, result: Any, /) -> None:
        """Called in the middle of the append or flush that reached the offset: it may only take note."""

    def set_exception(self, error: Exception, /) -> None:
        """Called in place of `set_result`, and likewise, if the offset will not be reached."""

    def exception(self) -> BaseException | None: ...


class OffsetWaiters:
    """Waiters by the offset that resolves them. Belongs to one event loop."""

    __slots__ = ("_abandoned", "_ticket", "heap")

    def __init__(self) -> None:
        self._abandoned = 0
        """Waiters that were abandoned since the heap was last cleared of them, at most half of it."""
        self.heap: list[tuple[int, int, OffsetWaiter]] = []
        """Empty: no one waits, and `reached` need not be called. Only this class changes it."""
        self._ticket = itertools.count()

    def wait_for(self, offset: int) -> asyncio.Future[None]:
        """A future that is done once `reached` is called with at least `offset`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.add(future, offset)
        return future

    def add(self, waiter: OffsetWaiter, offset: int) -> None:
        """Resolves `waiter` once `reached` is called with at least `offset`."""
        heapq.heappush(self.heap, (offset, next(self._ticket), waiter))

    def __len__(self) -> int:
        return len(self.heap)

    def abandon(self, waiter: OffsetWaiter) -> None:
        """Drops `waiter`: no one waits for it. Abandoned ones never exceed half of all."""
        if waiter.cancel():
            self._abandoned += 1
            if 2 * self._abandoned > len(self.heap):
                self.heap = [entry for entry in self.heap if not entry[2].done()]
                heapq.heapify(self.heap)
                self._abandoned = 0

    def reached(self, offset: int) -> None:
        """Resolves every waiter at or below `offset`."""
        heap = self.heap
        while heap and heap[0][0] <= offset:
            waiter = heapq.heappop(heap)[2]
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, error: Exception) -> None:
        """Fails every waiter with `error`: nothing more will be reached."""
        heap, self.heap = self.heap, []
        self._abandoned = 0
        for _, _, waiter in heap:
            if not waiter.done():
                waiter.set_exception(error)
                waiter.exception()  # looked at, in case the client that waits is gone meanwhile


class EventWaiter(Protocol):
    """Waits for the next event: a future, or a fetch, which is lighter."""

    def done(self) -> bool: ...

    def set_result(self, result: Any, /) -> None:
        """Called in the middle of the event, an append for instance: it may only take note."""


class EventWaiters(dict[EventWaiter, None]):
    """Waiters that the next event resolves, in order of arrival. Belongs to one event loop.

    A dictionary as an ordered set: an append finds out at no cost that no one waits for it.
    """

    __slots__ = ()

    def add(self, waiter: EventWaiter) -> None:
        """Resolves `waiter` at the next event; `remove` it when it is no longer needed."""
        self[waiter] = None

    def remove(self, waiter: EventWaiter) -> None:
        self.pop(waiter, None)

    def wake(self) -> None:
        """Resolves every waiter: there is something new to look at."""
        waiters = list(self)
        self.clear()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class ProgressWaiter(Protocol):
    """Waits for the high watermark or the log start to move."""

    def note_progress(self) -> None:
        """Called in the middle of the event, an append for instance: it may only take note."""


class Waiters:
    """All requests that wait on one partition."""

    __slots__ = ("append", "commit", "data", "flush", "progress")

    def __init__(self) -> None:
        self.commit = OffsetWaiters()
        """Produce requests that wait for the high watermark (acks=-1).

        These and those that wait for a flush get a `KafkaError` when leadership ends first.
        """
        self.flush = OffsetWaiters()
        """Produce requests (acks=1) and fetchers that wait until this replica's log is durable."""
        self.data = EventWaiters()
        """Consumers' fetches that wait for the high watermark to move."""
        self.append = EventWaiters()
        """Followers' fetches, and rows of their sessions, that wait for an append or a change of the role."""
        self.progress: dict[ProgressWaiter, None] = {}
        """Rows of followers' sessions that know the present high watermark and log start. A dictionary as a set."""

    def abandon(self, waiter: OffsetWaiter, *, by_all: bool) -> None:
        """Drops a waiter of `commit` (`by_all`) or of `flush`: the client no longer waits for it."""
        (self.commit if by_all else self.flush).abandon(waiter)

    def fail(self, error: Exception) -> None:
        """Fails the produce requests with `error`, and lets all fetches look again."""
        self.commit.fail(error)
        self.flush.fail(error)
        self.wake_fetches()

    def note_progress(self) -> None:
        """Notes that the high watermark or the log start has moved: followers learn of it with their next answer."""
        waiters = list(self.progress)
        self.progress.clear()
        for waiter in waiters:
            waiter.note_progress()

    def wake_fetches(self) -> None:
        """Lets the fetches of consumers and of followers look again."""
        self.data.wake()
        self.append.wake()
