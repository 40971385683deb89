"""The stop of this process: from the signal, or whatever else ends it, until the process is gone.

SIGTERM and SIGINT are blocked in every thread and received by one dedicated to them, so they take effect
even while the event loop is held up by a recovery or a slow disk. The first one starts a deadline; later
ones change nothing. Each step of the stop gets the time that is left, less what the later steps need.

At the deadline the process exits, whatever is still running: a thread that looks up a name holds an
interpreter for as long as the resolver takes, and a start may wait for a coordinator that never answers.
Only what is `holding` the process makes it wait longer: closing the logs takes as long as the disk takes.

Used by `serve.py`; knows nothing of what there is to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from typing import Any, Final, TypeVar

from echoless.broker.threads import OutOfThreadsError, start_thread

STOP_S: Final = 4.6
"""The time from the signal to the end of the process, which is promised within 5 s."""
THREADS_S: Final = 0.3
"""The time threads may keep running once everything else has ended."""
_LATE_S: Final = 1.5
"""Time for the remaining steps after something has held the process beyond the deadline."""
_REMIND_S: Final = 5.0
_SAY_S: Final = 0.2
_STANDARD_INPUT: Final = 0
_READ_SIZE: Final = 4096
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Stop:
    """The one stop of a process. Its methods may be called from any thread unless noted otherwise."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        """Set on the event loop when the stop has begun."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn = threading.Lock()
        self._deadline_s: float | None = None
        self._held_for = ""
        self._has_begun = threading.Event()
        self._released = threading.Event()
        self._has_ended = threading.Event()
        self._exit_code = 0

    # --- before ---

    def heed_signals(self) -> None:
        """Handles signals from now on. To be called by the main thread before it starts any other.

        The thread that keeps the deadline is started too: later there might be none to be had. Raises
        `OutOfThreadsError`.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        start_thread("signals", self._take_signals)
        start_thread("stop", self._watch)

    def heed_input(self) -> None:
        """Stops when standard input ends: the process that has started this one is gone. Raises `OutOfThreadsError`."""
        start_thread("input", self._read_input)

    def attach(self) -> None:
        """Sets `asked` on the running event loop, now or later."""
        with self._turn:
            self._loop = asyncio.get_running_loop()
            if self._deadline_s is not None:
                self.asked.set()

    async def unless_asked(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Returns or raises what `work` does; None if the stop began first and cancelled it."""
        loop = asyncio.get_running_loop()
        task, asked = loop.create_task(work), loop.create_task(self.asked.wait())
        await asyncio.wait((task, asked), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not self.asked.is_set():
            return await task
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("what the signal interrupted failed: %s", error)
        return None

    # --- the stop ---

    def begin(self, reason: str) -> None:
        """Starts the deadline, the first time."""
        if self._begin():
            logger.info("stopping: %s", reason)

    def _begin(self) -> bool:
        """Whether this is the first time."""
        with self._turn:
            if self._deadline_s is not None:
                return False
            self._deadline_s = time.monotonic() + STOP_S
            if self._loop is not None:
                with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                    self._loop.call_soon_threadsafe(self.asked.set)
        self._has_begun.set()
        return True

    def left_s(self, *, reserve_s: float = 0.0) -> float:
        """Seconds left until the deadline, less what later steps need; the full time before the stop."""
        deadline_s = self._deadline_s
        left_s = STOP_S if deadline_s is None else deadline_s - time.monotonic()
        return max(left_s - reserve_s, 0.0)

    @contextlib.contextmanager
    def holding(self, work: str) -> Iterator[None]:
        """Keeps the process from exiting during `work`, which the log names if it takes long."""
        self._released.clear()
        self._held_for = work
        try:
            yield
        finally:
            self._held_for = ""
            self._released.set()

    def end(self, exit_code: int) -> None:
        """Lets the process exit with this code as soon as its threads have ended, or shortly anyway."""
        self._exit_code = exit_code
        self._begin()
        self._has_ended.set()

    # --- threads ---

    def _take_signals(self) -> None:
        while True:
            self.begin(signal.Signals(signal.sigwait(_SIGNALS)).name)

    def _read_input(self) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while os.read(_STANDARD_INPUT, _READ_SIZE):
                pass
        self.begin("standard input has ended")

    def _watch(self) -> None:
        """Exits the process, unless that ends first; does not return."""
        self._has_begun.wait()
        self._has_ended.wait(self.left_s())
        is_late = bool(self._held_for)
        while self._held_for:
            logger.warning("%s takes long; the process ends when that is done", self._held_for)
            self._released.wait(_REMIND_S)
        if is_late:
            self._has_ended.wait(_LATE_S)
        if self._has_ended.is_set():
            time.sleep(THREADS_S)
        # Whatever writes the log may be stuck as well.
        with contextlib.suppress(OutOfThreadsError):
            start_thread("farewell", _say_farewell).join(_SAY_S)
        os._exit(self._exit_code)


def _say_farewell() -> None:
    own = {"stop", "signals", "farewell"}
    names = [thread.name for thread in threading.enumerate() if thread.name not in own]
    logger.warning("leaving, although some threads have not ended: %s", ", ".join(names) or "none")
    sys.stdout.flush()
    sys.stderr.flush()
