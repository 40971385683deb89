"""The activity of all threads and tasks of this process, as text for a hanging test's report."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any, Final

from tests.support.process_tree import processes_below

_FRAMES_MAX: Final = 16
"""The newest of each thread; what is below them is pytest."""
_TASKS_MAX: Final = 100
_COMMAND_LENGTH_MAX: Final = 160


def describe_process(loop: asyncio.AbstractEventLoop | None = None) -> str:
    """Describe all threads, the tasks of `loop`, and the processes below this one."""
    return "\n".join([*_threads(), *_tasks(loop), *_processes()])


def _threads() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield f"--- thread {names.get(ident, ident)}"
        yield "".join(traceback.format_stack(frame, _FRAMES_MAX)).rstrip()


def _tasks(loop: asyncio.AbstractEventLoop | None) -> Iterator[str]:
    if loop is None:
        return
    tasks = asyncio.all_tasks(loop)
    for task in list(tasks)[:_TASKS_MAX]:
        yield f"--- task {task.get_name()}"
        yield from _awaits(task.get_coro())
    if len(tasks) > _TASKS_MAX:
        yield f"--- and {len(tasks) - _TASKS_MAX} more tasks"


def _awaits(awaited: Any) -> Iterator[str]:
    """Follow a coroutine to what it waits for; `Task.get_stack` ends at the outermost frame."""
    while awaited is not None:
        frame = _first(awaited, "cr_frame", "gi_frame", "ag_frame")
        if frame is None:
            yield f"  awaits {awaited!r}"
            return
        summary = traceback.extract_stack(frame, limit=1)
        yield "".join(traceback.format_list(summary)).rstrip()
        awaited = _first(awaited, "cr_await", "gi_yieldfrom", "ag_await")


def _first(value: object, *names: str) -> Any:
    return next(
        (found for name in names if (found := getattr(value, name, None)) is not None), None
    )


def _processes() -> Iterator[str]:
    for process in processes_below(os.getpid()):
        command = process.command.replace(b"\0", b" ").decode(errors="replace")
        yield f"--- process {process.pid} (of {process.parent}): {command[:_COMMAND_LENGTH_MAX]}"
