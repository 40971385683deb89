"""The threads of the process, all of them started before it serves.

A process may be refused a new thread at any time: by a limit of processes (`ulimit -u`), by the
`pids.max` of a container, by a machine that is full. That is a shortage and no doubt about anything, so
whatever a request or a flush needs a thread for waits for one of those that the start has made. Nothing in
the broker uses the event loop's own pool, which makes its threads as it goes along and fails without them.
What does need a new thread later (a name lookup, a session with ZooKeeper) gets `OutOfThreadsError` and
tries again.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

_REMEDY: Final = "the process may start no more threads: raise its limit (ulimit -u, or pids.max of its container)"


class OutOfThreadsError(OSError):
    """A thread could not be started; it may succeed later."""

    def __init__(self, name: str) -> None:
        super().__init__(errno.EAGAIN, f"cannot start the thread '{name}': {_REMEDY}")

    def __str__(self) -> str:
        return str(self.strerror)


def start_thread(name: str, target: Callable[..., object], *args: Any) -> threading.Thread:
    """Starts a thread that does not keep the process alive. Raises `OutOfThreadsError`."""
    thread = threading.Thread(target=target, name=name, args=args, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise OutOfThreadsError(name) from error
    return thread


class Workers:
    """A fixed number of threads; work waits in a queue until one of them is idle."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._pool = ThreadPoolExecutor(count, name)

    def start(self) -> None:
        """Starts all threads now instead of when they are needed. Raises `OutOfThreadsError`."""
        may_end = threading.Event()
        try:
            for _ in range(self._count):
                self._pool.submit(may_end.wait)  # one that is busy makes the pool start the next
        except RuntimeError as error:
            raise OutOfThreadsError(self._name) from error
        finally:
            may_end.set()

    async def run(self, work: Callable[[], Result]) -> Result:
        """Returns or raises what `work` does in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def stop(self) -> None:
        """Drops work that has not begun; its callers are gone. Does not wait for the rest."""
        self._pool.shutdown(wait=False, cancel_futures=True)


DISK: Final = Workers("disk", 4)
"""Whatever waits for the disk: flushes, checkpoints, partitions that are created and removed."""
BESIDE_THE_LOOP: Final = Workers("beside-the-loop", 1)
"""Whatever needs the interpreter for long: encoding many rows, importing modules. One thread: each
further one would take its share of the interpreter from the event loop."""


def start_workers() -> None:
    """Starts the threads that every broker has. Raises `OutOfThreadsError`."""
    DISK.start()
    BESIDE_THE_LOOP.start()
