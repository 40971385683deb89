"""The timers of one coordinator, by key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Timers(Generic[Key]):
    """Calls back at given times of the loop's clock, in whole milliseconds; one timer for each key."""

    def __init__(self, fired: Callable[[Key], None]) -> None:
        self._fired = fired
        self._handles: dict[Key, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._handles)

    def set(self, key: Key, at_ms: int) -> None:
        """Calls back at that time, and at no other that was set for this key."""
        self.cancel(key)
        loop = asyncio.get_running_loop()
        self._handles[key] = loop.call_at(at_ms / 1000, self._fire, key)

    def cancel(self, key: Key) -> None:
        """Does not call back for this key."""
        handle = self._handles.pop(key, None)
        if handle is not None:
            handle.cancel()

    def cancel_all(self) -> None:
        """Does not call back any more."""
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()

    def _fire(self, key: Key) -> None:
        del self._handles[key]
        self._fired(key)
