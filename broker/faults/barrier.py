"""The requests, or their answers, that one rule holds until they are released.

Released by the admin port, by the end of the rule, and by the stop of the broker. A request whose client has gone
meanwhile stays: it is processed when it is released, like a late packet.

Invariant: a request that a rule holds is released, or dropped with its connection or the broker: by the API, by the end of
its rule, by the stop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.faults.changes import Changes

if TYPE_CHECKING:
    from echoless.broker.faults.requests import ReadRequest

HELD_MAX: Final = 1000
"""Requests that one rule holds at a time; it leaves further ones alone."""
_SHOWN_MAX: Final = 100


class _Held(NamedTuple):
    """A request that waits."""

    request: ReadRequest
    since_s: float
    """By the clock of the event loop."""
    released: asyncio.Future[None]


class Barrier:
    """Requests that one rule holds, oldest first. Belongs to the event loop."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._held: list[_Held] = []
        self._is_open = False

    @property
    def count(self) -> int:
        """Number of requests that are held now."""
        return len(self._held)

    @property
    def is_full(self) -> bool:
        """Whether it takes no more."""
        return len(self._held) >= HELD_MAX

    async def hold(self, request: ReadRequest) -> None:
        """Returns when the request is released."""
        if self._is_open:
            return
        loop = asyncio.get_running_loop()
        held = _Held(request, loop.time(), loop.create_future())
        self._held.append(held)
        self._changes.note()
        try:
            await held.released
        finally:
            if held in self._held:  # cancelled
                self._held.remove(held)
                self._changes.note()

    def release(self, count: int | None = None) -> int:
        """Releases the oldest ones, or all; returns their number."""
        released = self._held[:count]
        del self._held[:count]
        for one in released:
            if not one.released.done():
                one.released.set_result(None)
        self._changes.note()
        return len(released)

    def open(self) -> None:
        """Releases all, and holds none from now on."""
        self._is_open = True
        self.release()

    def document(self, now_s: float) -> list[dict[str, Any]]:
        """The requests that are held, for JSON, the first ones of many."""
        return [
            {
                "api": one.request.facts.api,
                "client_id": one.request.facts.client_id,
                "connection_id": one.request.peer.connection_id,
                "correlation_id": one.request.facts.correlation_id,
                "held_ms": int((now_s - one.since_s) * 1000),
                "client_gone": one.request.peer.has_ended,
            }
            for one in self._held[:_SHOWN_MAX]
        ]
