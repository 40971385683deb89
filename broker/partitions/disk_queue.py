"""Work on the data directory that waits for the disk: one job after another, off the event loop.

Jobs run in the order in which they were submitted, so that a partition that is deleted and created
again under the same name is gone before it comes back. A job is a coroutine: whatever waits for the
disk it does `in_thread`, and it yields between slices of everything else. A `StorageError` takes
the log directory offline; the jobs after it see that for themselves.

Invariant: nothing syncs on the event loop while requests are served.

Called by `partition_registry.py`. Knows nothing of partitions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from echoless.broker.essential_task import essential_task
from echoless.broker.threads import DISK
from echoless.storage.file_system import StorageError

T = TypeVar("T")
Job = Callable[[], Awaitable[None]]


class DiskQueue:
    """Runs jobs while there are any."""

    def __init__(self, name: str, on_failure: Callable[[StorageError], None]) -> None:
        self.is_closing = False
        """Set on closing: a job that need not be finished ends at its next step."""
        self._name = name
        self._on_failure = on_failure
        self._jobs: deque[tuple[Job, asyncio.Future[None]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def submit(self, job: Job) -> asyncio.Future[None]:
        """Queues a job; the future is done when the job has ended, successfully or not."""
        done = asyncio.get_running_loop().create_future()
        self._jobs.append((job, done))
        if self._task is None or self._task.done():
            self._task = essential_task(self._run(), self._name)
        return done

    async def idle(self) -> None:
        """Returns when there is nothing to do."""
        while self._task is not None and not self._task.done():
            await asyncio.shield(self._task)

    async def close(self) -> None:
        """Returns when every job has ended; none may be submitted any more."""
        self.is_closing = True
        await self.idle()

    async def _run(self) -> None:
        while self._jobs:
            job, done = self._jobs.popleft()
            try:
                await job()
            except StorageError as error:
                self._on_failure(error)
            finally:
                if not done.done():
                    done.set_result(None)


async def in_thread(work: Callable[[], T]) -> T:
    """Runs `work` in a thread and returns or raises what it does."""
    return await DISK.run(work)
