"""A process of the simulated world: what stops running when its machine pauses or dies.

Every callback of the virtual loop belongs to the process in whose context it was scheduled, so a
broker need not know that it can be stopped: its callbacks simply do not run any more, as with
SIGSTOP and SIGKILL.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from asyncio import Task
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from inspect import CORO_CREATED as CREATED
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.network.request import NeedsFrameUntil, NeedsNoFrame

if TYPE_CHECKING:
    from tests.simulation.virtual_loop import Handle, VirtualLoop

EXECUTOR_DELAY_S_MAX: Final = 0.002
CLOSE_ATTEMPTS_MAX: Final = 10
"""How often a coroutine may wait in its own clean-up when it is thrown away."""


class Process:
    """One run of one program: from its start to its end, with pauses."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.loop = loop
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.resumed_at = -1.0
        """Time of the last resumption; -1: never paused."""
        self.executor_delay_s_max = EXECUTOR_DELAY_S_MAX
        """How long its threads take: on disks, mostly."""
        self.parked: deque[Handle] = deque()
        """Callbacks that became due during the pause, in order."""
        self.tasks: list[Task[Any]] = []
        """All of them, kept: a dead process must not be cleaned up by the garbage collector."""
        self.context: Context = copy_context()
        self.context.run(OWNER.set, self)

    def __repr__(self) -> str:
        return self.name

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str | None = None) -> Task[Any]:
        """Runs the coroutine as a task of this process."""
        return self.context.run(lambda: self.loop.create_task(coroutine, name=name))

    def soon(self, callback: Callable[..., object], *args: Any) -> Handle:
        """Runs the callback in this process, now."""
        return self.loop.call_soon(callback, *args, context=self.context)

    def later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Handle:
        """Runs the callback in this process, after `delay_s`."""
        return self.loop.call_later(delay_s, callback, *args, context=self.context)

    def pause(self) -> None:
        """SIGSTOP: nothing runs until `resume`, while the world continues."""
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT: what became due meanwhile runs now, in order."""
        if not self.is_paused:
            return
        self.is_paused = False
        self.resumed_at = self.loop.time()
        self.loop.make_ready(self.parked)
        self.parked.clear()

    def kill(self) -> None:
        """SIGKILL: nothing runs any more."""
        self.is_dead = True
        self.parked.clear()

    def discard(self) -> None:
        """Throws away what is left, when the history is over."""
        with warnings.catch_warnings():
            # Coroutines that were about to begin when the world ended.
            warnings.simplefilter("ignore", RuntimeWarning)
            for task in self.tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    _close(task)
            self.tasks.clear()


def _close(task: Task[Any]) -> None:
    coroutine = task.get_coro()
    close_unstarted(coroutine)
    for _ in range(CLOSE_ATTEMPTS_MAX):
        with contextlib.suppress(Exception):
            coroutine.close()
            return


def close_unstarted(waited_for: object) -> None:
    """Closes what a coroutine that has not begun would have awaited: an answer that is to be framed, for instance."""
    if isinstance(waited_for, NeedsNoFrame | NeedsFrameUntil):
        waited_for = waited_for._answer
    if inspect.iscoroutine(waited_for) and inspect.getcoroutinestate(waited_for) == CREATED:
        for inner in list(inspect.getcoroutinelocals(waited_for).values()):
            close_unstarted(inner)
        waited_for.close()


OWNER: ContextVar[Process | None] = ContextVar("OWNER", default=None)
"""The process that the running callback belongs to; None: the world itself."""
