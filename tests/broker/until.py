"""A wait for what the event loop will bring about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

WITHIN_S = 120.0


async def until(holds: Callable[[], object]) -> None:
    """Returns as soon as it holds; fails after a generous time."""
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110 - what holds is the state of others, not an event
            await asyncio.sleep(0.001)
