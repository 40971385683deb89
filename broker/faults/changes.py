"""Waiting until something changes about a rule: it has acted, or holds another request."""

from __future__ import annotations

import asyncio


class Changes:
    """Wakes everyone who waits, at each change. Belongs to the event loop."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def note(self) -> None:
        """Wakes those who wait now."""
        for one in self._waiting:
            if not one.done():
                one.set_result(None)

    async def next(self) -> None:
        """Returns at the next change."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(changed)
        try:
            await changed
        finally:
            self._waiting.discard(changed)
