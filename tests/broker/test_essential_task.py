"""Tasks whose end is noticed."""

from __future__ import annotations

import asyncio
from typing import Any

from echoless.broker.essential_task import ESSENTIAL_TASK, essential_task


async def _fail() -> None:
    raise ValueError("a bug")


async def test_a_failure_is_told_though_nobody_awaits_the_task() -> None:
    """The loop's handler is called, and the broker cannot continue without the task."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[dict[str, Any]] = loop.create_future()
    loop.set_exception_handler(lambda _, context: told.set_result(context))
    essential_task(_fail(), "flusher")
    context = await told
    assert context["message"] == "the task 'flusher' has failed"
    assert isinstance(context["exception"], ValueError)
    assert context[ESSENTIAL_TASK]


async def test_a_cancelled_task_has_not_failed() -> None:
    """Stopping is no bug."""
    loop = asyncio.get_running_loop()
    told: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: told.append(context))
    task = essential_task(asyncio.Event().wait(), "flusher")  # type: ignore[arg-type]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert told == []
