"""An answer that a later event makes ready, without a task that waits for it.

A produce request that waits for a flush or for replicas holds a promise and nothing else: no task, no future, no
timer of its own. Each layer that the answer passes on its way to the client adds its step with `then`; the
connection watches the promise, and takes the answer when it is ready.

Its request's bytes are no longer needed: their memory is released to other requests at once. Where a request waits
for something else than this broker's own work, it may wait for long, and counts among those that wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Self


class Promise:
    """One answer to come. Belongs to one event loop.

    Can be awaited, too, by whatever does more with the answer than pass it on.
    """

    __slots__ = ("_on_ready", "_steps", "is_ready")

    waits_for_others = False
    """Whether it waits for others than this broker, for a producer's records for instance."""

    def __init__(self) -> None:
        self.is_ready = False
        """Whether `answer` may be called."""
        self._on_ready: Callable[[], None] | None = None
        self._steps: tuple[Callable[[Any], Any], ...] = ()

    def then(self, step: Callable[[Any], Any]) -> Self:
        """Adds a step that turns the answer into what the next layer expects."""
        self._steps = (*self._steps, step)
        return self

    def watch(self, on_ready: Callable[[], None]) -> None:
        """Calls `on_ready` once, at the event that makes the answer ready; at once if it is.

        It is called in the middle of that event, an append for instance, so it may only take note.
        """
        if self.is_ready:
            on_ready()
        else:
            self._on_ready = on_ready

    def answer(self) -> Any:
        """The answer, after all steps."""
        answer = self._result()
        for step in self._steps:
            answer = step(answer)
        return answer

    def abandon(self) -> None:
        """Ends the wait: the client is gone. Does nothing once the answer is ready."""
        raise NotImplementedError

    def _result(self) -> Any:
        """The answer before any step."""
        raise NotImplementedError

    def _become_ready(self) -> None:
        self.is_ready = True
        on_ready, self._on_ready = self._on_ready, None
        if on_ready is not None:
            on_ready()

    def __await__(self) -> Generator[Any, None, Any]:
        ready = asyncio.get_running_loop().create_future()

        def resolve() -> None:
            if not ready.done():
                ready.set_result(None)

        self.watch(resolve)
        try:
            yield from ready
        finally:
            self.abandon()
        return self.answer()
