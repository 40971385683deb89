"""Tasks that the broker cannot do without: a bug that ends one must be reported at once.

Python reports a task's exception when it is awaited; no one awaits a task that never ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

ESSENTIAL_TASK: Final = "essential_task"
"""The key by which the loop's exception handler knows that the broker cannot go on."""


def essential_task(coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Starts a task whose exception goes to the loop's exception handler as soon as it ends it."""
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    task.add_done_callback(_report_failure)
    return task


def reported_task(coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Like `essential_task`, for a task that the broker can go on without."""
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    task.add_done_callback(report_error)
    return task


def _report_failure(task: asyncio.Task[None]) -> None:
    _report(task, {ESSENTIAL_TASK: True})


def report_error(task: asyncio.Future[Any]) -> None:
    """Passes what an unawaited task raised to the loop's exception handler: a done callback."""
    _report(task, {})


def _report(task: asyncio.Future[Any], more: dict[str, Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        name = task.get_name() if isinstance(task, asyncio.Task) else "a request"
        task.get_loop().call_exception_handler(
            {"message": f"the task '{name}' has failed", "exception": error, **more}
        )
