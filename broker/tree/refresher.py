"""A task that brings a view of the tree up to date, whenever it is asked to.

Watches ask it; requests that arrive while it is busy cause one more round. A round that fails is
repeated when a watch calls, as all do after a reconnection, and after a while in any case.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from echoless.broker.essential_task import essential_task
from echoless.broker.limited_log import RetryLog
from echoless.broker.tree.node_tree import CoordinationError

logger = logging.getLogger(__name__)
limited: Final = RetryLog(logger)

RETRY_INTERVAL_S: Final = 0.5


class Refresher:
    """Runs `refresh` after each `ask`, one at a time, from `start` to `close`."""

    def __init__(
        self, name: str, refresh: Callable[[], Awaitable[None]], *, every_s: float | None = None
    ) -> None:
        """`every_s`: seconds after which a round comes unasked, since an announcement may be lost; None: none does."""
        self._name = name
        self._refresh = refresh
        self._every_s = every_s
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins the task; what was asked for before is done now."""
        self._task = essential_task(self._run(), self._name)

    def ask(self) -> None:
        """Requests one more round, soon."""
        self._asked.set()

    async def close(self) -> None:
        """Ends the task, even in the middle of a round."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._asked.wait()
            self._asked.clear()
            try:
                await self._refresh()
            except CoordinationError as error:
                message = "%s: will be read again: %s"
                limited.log(logging.INFO, self._name, message, self._name, error)
                loop.call_later(RETRY_INTERVAL_S, self.ask)
