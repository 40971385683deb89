"""Reads that several callers share: each gets a value that was read after its call.

A leader reads a follower's broker epoch before each change of an ISR; a follower that has caught up with thousands of partitions
would have it read as often.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class SharedReads(Generic[Key, Value]):
    """Reads each key at most once at a time; what is asked for meanwhile shares the next read."""

    def __init__(self, read: Callable[[Key], Awaitable[Value]]) -> None:
        self._read = read
        self._next: dict[Key, asyncio.Task[Value]] = {}
        """Reads that have not begun."""
        self._turns: defaultdict[Key, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def read(self, key: Key) -> Value:
        """Raises what the read raises."""
        due = self._next.get(key)
        if due is None:
            due = self._next[key] = asyncio.get_running_loop().create_task(self._begin(key))
            due.add_done_callback(_retrieve)
        return await asyncio.shield(due)

    async def _begin(self, key: Key) -> Value:
        async with self._turns[key]:
            del self._next[key]
            return await self._read(key)


def _retrieve(due: asyncio.Task[Value]) -> None:
    """Takes the outcome, which perhaps no caller waits for."""
    if not due.cancelled():
        due.exception()
