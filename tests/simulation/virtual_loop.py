"""An asyncio event loop without a clock, threads, sockets or signals: time jumps to the next timer.

Callbacks run in the order in which they were made ready, timers in the order of their times, so a
seed decides everything; how long a callback really takes does not matter, even to the turns of
requests with many rows. What runs in an executor elsewhere runs here inline, between two short seeded
delays.

Invariant: `time()` never goes back, and does not move while a callback runs.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final, Self

from echoless.broker.network.loop_turn import LOOP_TURN
from tests.simulation.process import EXECUTOR_DELAY_S_MAX, OWNER, Process

START_S: Final = 1000.0
STEPS_AT_ONE_TIME_MAX: Final = 20_000
"""Callbacks without the clock moving; more is a loop that never waits."""


class LivelockError(Exception):
    """Callbacks make each other ready for ever, and time does not advance."""


class Handle:
    """A scheduled callback, of a process."""

    __slots__ = ("_when", "args", "callback", "context", "is_cancelled", "owner")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context, when: float
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self._when = when
        self.is_cancelled = False
        self.owner: Process | None = context.get(OWNER)

    def cancel(self) -> None:
        self.is_cancelled = True
        self.callback, self.args = _nothing, ()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self._when


def _nothing() -> None:
    """The callback of a cancelled handle."""


class VirtualLoop(asyncio.AbstractEventLoop):
    """The loop. `on_error` gets unexpected exceptions of callbacks and tasks."""

    def __init__(
        self, rng: Random, on_error: Callable[[Process | None, BaseException], None]
    ) -> None:
        self._rng = rng
        self._on_error = on_error
        self._now = START_S
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._timer_count = 0
        self._is_over = False
        self.steps = 0
        """Callbacks run so far."""
        self._steps_before = 0
        """Those that ran before the clock moved last."""

    # Running

    def run_until(self, end: float, is_done: Callable[[], bool] | None = None) -> bool:
        """Runs until the clock shows `end`, or `is_done` at some step of the clock; says whether."""
        while not self._is_over:
            self._run_ready()
            if is_done is not None and is_done():
                return True
            if not self._timers or self._timers[0][0] > end:
                self._now = max(self._now, end)
                return False
            if self._timers[0][0] > self._now:  # else a timer was set to a time that has passed
                self._now, self._steps_before = self._timers[0][0], self.steps
            self._take_due()
        return False

    def _run_ready(self) -> None:
        ready = self._ready
        while ready:
            handle = ready.popleft()
            if handle.is_cancelled:
                continue
            owner = handle.owner
            if owner is not None:
                if owner.is_dead:
                    continue
                if owner.is_paused:
                    owner.parked.append(handle)
                    continue
            self.steps += 1
            try:
                handle.context.run(handle.callback, *handle.args)
            except Exception as error:  # noqa: BLE001 - as asyncio's own loop
                self._on_error(owner, error)
            if self.steps - self._steps_before > STEPS_AT_ONE_TIME_MAX:
                raise LivelockError(f"{STEPS_AT_ONE_TIME_MAX} callbacks at {self._now}")

    def _take_due(self) -> None:
        timers, now = self._timers, self._now
        while timers and timers[0][0] <= now:
            self._ready.append(heapq.heappop(timers)[2])

    def make_ready(self, handles: Iterable[Handle]) -> None:
        """Runs handles that were held back, in order."""
        self._ready.extend(handles)

    def close(self) -> None:
        """The history is over: nothing runs any more, whatever is scheduled."""
        self._is_over = True
        self._ready.clear()
        self._timers.clear()

    # asyncio.AbstractEventLoop, as far as the broker goes

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, copy_context() if context is None else context, self._now)
        if not self._is_over:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        handle = Handle(callback, args, copy_context() if context is None else context, when)
        if not self._is_over:
            self._timer_count += 1
            heapq.heappush(self._timers, (when, self._timer_count, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        owner = OWNER.get() if context is None else context.get(OWNER)
        if owner is not None:
            owner.tasks.append(task)
        task.add_done_callback(self._look_at)
        return task

    def _look_at(self, task: asyncio.Task[Any]) -> None:
        """Reports a task that died unexpectedly, even if no one awaits it."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(OWNER.get(), error)

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        owner = OWNER.get()
        longest_s = EXECUTOR_DELAY_S_MAX if owner is None else owner.executor_delay_s_max
        delays = [self._rng.uniform(0, longest_s) for _ in range(2)]
        self.call_later(delays[0], self._execute, future, delays[1], func, args)
        return future

    def _execute(
        self, future: asyncio.Future[Any], delay: float, func: Callable[..., Any], args: Any
    ) -> None:
        """Runs as a thread would, even if no one waits for the result any more."""
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - handed to who waits, as an executor does
            self.call_later(delay, _settle, future, None, error)
        else:
            self.call_later(delay, _settle, future, result, None)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Handles asyncio's complaints about exceptions in callbacks; `_look_at` sees the tasks'."""
        error = context.get("exception")
        if error is not None and "never retrieved" not in context.get("message", ""):
            self._on_error(OWNER.get(), error)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._is_over

    def is_closed(self) -> bool:
        return self._is_over

    # Entering and leaving

    def __enter__(self) -> Self:
        events._set_running_loop(self)
        self._usual_clock, LOOP_TURN.clock = LOOP_TURN.clock, self.time
        return self

    def __exit__(self, *_exception: object) -> None:
        events._set_running_loop(None)
        LOOP_TURN.clock = self._usual_clock
        self.close()


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
