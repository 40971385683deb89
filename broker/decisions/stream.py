"""The bounded queue of events not yet sent to one reader of `/decisions?follow=true`.

The broker never waits for a reader: events that find the queue full are counted and dropped, and the
reader is sent their number, at the point where they are missing. Single owner: the event loop. Knows
nothing of HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from echoless.broker.decisions.events import Event, RequestSeen, Subject

CAPACITY_DEFAULT: Final = 10_000
RECORD_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of records in the queue from which on nothing more is queued."""


class Selection(NamedTuple):
    """The events that a reader wants to see; None means any."""

    producer_id: int | None = None
    topic: str | None = None
    partition: int | None = None
    may_see: Callable[[Event], bool] | None = None
    """Whether the reader may see an event at all."""
    requests: bool = False
    """Whether the reader wants each request besides what was decided."""
    records: bool = False
    """Whether it wants the records in them."""

    def includes(self, event: Event) -> bool:
        """Whether the event is wanted; a fault hitting a request without batches concerns every reader."""
        if isinstance(event, RequestSeen) and not self.requests:
            return False
        subjects = event.subjects()
        is_wanted = not subjects or any(self._picks(subject) for subject in subjects)
        return is_wanted and (self.may_see is None or self.may_see(event))

    def _picks(self, subject: Subject) -> bool:
        return all(
            wanted is None or found is None or wanted == found
            for wanted, found in zip(self[: len(subject)], subject, strict=True)
        )


EVERYTHING: Final = Selection()


class Waiting(NamedTuple):
    """Events for a reader to take at one time."""

    events: Sequence[Event]
    lost: int
    """Number of events after these that found no room."""
    fence: int = 0
    """Number of the latest fence, which is behind all of them; 0 if there is no new one."""


class DecisionStream:
    """The queue of one reader."""

    __slots__ = (
        *("_capacity", "_events", "_fence", "_has_news", "_is_closed", "_lost", "_record_bytes"),
        *("_sent_fence", "is_console", "name", "selection"),
    )

    def __init__(
        self,
        selection: Selection = EVERYTHING,
        capacity: int = CAPACITY_DEFAULT,
        *,
        is_console: bool = False,
        name: str | None = None,
    ) -> None:
        """`is_console`: its reader is a browser's page, for which there are places of its own. `name`: what it sets fences by."""
        self.selection = selection
        self.is_console = is_console
        self.name = name
        self._capacity = capacity
        self._events: list[Event] = []
        self._lost = 0
        self._record_bytes = 0
        self._fence = self._sent_fence = 0
        self._has_news = asyncio.Event()
        self._is_closed = False

    def offer(self, event: Event) -> None:
        """Keeps the event if it is wanted and there is room; never waits."""
        if self._is_closed or not self.selection.includes(event):
            return
        has_room = len(self._events) < self._capacity and self._record_bytes < RECORD_BYTES_MAX
        if has_room and not self._lost:
            self._events.append(event)
            if isinstance(event, RequestSeen):
                self._record_bytes += event.record_bytes
        else:
            self._lost += 1
        self._has_news.set()

    def set_fence(self) -> int:
        """Has the reader notified once it has got everything up to here. Returns the fence's number, from 1 on."""
        self._fence += 1
        self._has_news.set()
        return self._fence

    async def take(self) -> Waiting | None:
        """Everything queued, as soon as there is something; None when the stream is closed."""
        await self._has_news.wait()
        fence = self._fence if self._fence > self._sent_fence else 0
        if not self._events and not self._lost and not fence:
            return None
        waiting = Waiting(self._events, self._lost, fence)
        self._events, self._lost, self._record_bytes = [], 0, 0
        self._sent_fence = self._fence
        if not self._is_closed:
            self._has_news.clear()
        return waiting

    def close(self) -> None:
        """Accepts no more events; the reader gets what is queued, then the end."""
        self._is_closed = True
        self._has_news.set()
