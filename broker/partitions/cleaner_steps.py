"""The steps of one pass of compaction: done by a thread of the broker, or by a process beside it.

A thread takes the interpreter from the event loop, so it works some milliseconds at a time, and a quarter of one while clients ask for
anything: a request may have to wait so long. Then it pauses for four times as long. A process does neither.

Called by `cleaner.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from echoless.broker.network.loop_turn import LOOP_TURN
from echoless.broker.threads import DISK
from echoless.storage.file_system import OutOfDescriptorsError, StorageError

if TYPE_CHECKING:
    from echoless.broker.partitions.cleaner_process import CleanerProcess
    from echoless.storage.compaction.cleaning import Cleaning, CleaningReport, Step
    from echoless.storage.compaction.worker import FailedPass

_SLICE_S: Final = 0.005
"""Work at a time, as long as a thread may keep the interpreter anyhow; a step may take a little longer."""
_BUSY_SLICE_S: Final = 0.00025
"""The same while clients ask for something."""
_PAUSES: Final = 4
"""Pauses, in slices, meanwhile: the thread then has a fifth of one core at most."""
_PORTION_S: Final = 0.05
"""Work of the process at a time: so long it works on for a broker that was killed, or a log that was cut."""

END: Final = object()


class FailedPassError(Exception):
    """The process could not clean a log, for a reason that is not the disk's."""


class PassSteps(Protocol):
    """The steps of one pass."""

    @property
    def report(self) -> CleaningReport: ...
    async def advance(self, *, is_busy: bool) -> object:
        """Does some of the work; returns a segment to swap, None, or `END`. Raises `StorageError` and others."""

    async def pause(self, took_s: float, limited_s: float, *, is_busy: bool) -> None:
        """Pauses after work that took so long, and may take `limited_s` by the limit of bytes."""

    async def close(self) -> None:
        """Ends a pass that is not carried to its end."""


class ThreadSteps:
    """The steps of a pass in a thread."""

    def __init__(self, cleaning: Cleaning) -> None:
        self._cleaning = cleaning
        self._steps = cleaning.steps()

    @property
    def report(self) -> CleaningReport:
        return self._cleaning.report

    async def advance(self, *, is_busy: bool) -> object:
        until_s = LOOP_TURN.clock() + (_BUSY_SLICE_S if is_busy else _SLICE_S)
        return await DISK.run(partial(_advance, self._steps, until_s))

    async def pause(self, took_s: float, limited_s: float, *, is_busy: bool) -> None:
        pause_s = took_s * _PAUSES if is_busy else 0.0
        await asyncio.sleep(max(pause_s, limited_s - took_s))

    async def close(self) -> None:
        await DISK.run(self._steps.close)


class ProcessSteps:
    """The same in the process."""

    def __init__(self, cleaning: Cleaning, process: CleanerProcess) -> None:
        self.report = cleaning.report
        self._process = process
        process.begin(cleaning.job)

    async def advance(self, *, is_busy: bool) -> object:  # noqa: ARG002 - it takes no one's turn
        progress = await self._process.work(_PORTION_S)
        self.report = progress.report
        if progress.failure is not None:
            raise _error_of(progress.failure)
        return END if progress.is_end else progress.step

    async def pause(self, took_s: float, limited_s: float, *, is_busy: bool) -> None:  # noqa: ARG002
        if limited_s > took_s:
            await asyncio.sleep(limited_s - took_s)

    async def close(self) -> None:
        """Leaves the pass to the next job, or the end of the process."""


def _advance(steps: Generator[Step, None, None], until_s: float) -> object:
    """Works until then, or up to a segment that is to be swapped; returns that, None or the end."""
    for step in steps:
        if step is not None:
            return step
        if LOOP_TURN.clock() >= until_s:
            return None
    return END


def _error_of(failure: FailedPass) -> Exception:
    text, path, is_shortage = failure
    if path is None:
        return FailedPassError(text)
    return OutOfDescriptorsError(path, text) if is_shortage else StorageError(path, text)
