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
import atexit
import contextlib
import errno
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from echoless.broker.work_queue import Taker, WorkQueue

if TYPE_CHECKING:
    from concurrent.futures import Executor

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
    """A fixed number of threads; work waits in a queue until one of them is idle.

    A flush passes through here for every few requests, and a `ThreadPoolExecutor` takes 7 us longer for each: it has a
    future of its own, with a lock, beside the loop's. Like that one it lets the process end when its work is done.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._work: WorkQueue[_Work] = WorkQueue()
        self._threads: list[threading.Thread] = []
        self._has_stopped = False

    def start(self) -> None:
        """Starts all threads now instead of when they are needed. Raises `OutOfThreadsError`."""
        if not self._threads:
            atexit.register(self._end)
        while len(self._threads) < self._count:
            name = f"{self._name}_{len(self._threads)}"
            try:
                self._threads.append(start_thread(name, _do_work, self._work))
            except OutOfThreadsError as error:
                raise OutOfThreadsError(self._name) from error

    async def run(self, work: Callable[[], Result]) -> Result:
        """Returns or raises what `work` does in a thread."""
        loop = asyncio.get_running_loop()
        # By way of the loop, so that the simulator's can do it in its own time; others call `submit`.
        return await loop.run_in_executor(cast("Executor", self), work)

    def submit(self, work: Callable[[], Result]) -> asyncio.Future[Result]:
        """Hands the work to a thread, for the running loop, which takes its own futures as they are."""
        if self._has_stopped:
            raise RuntimeError(f"the threads '{self._name}' have ended")
        if len(self._threads) < self._count:
            self.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._work.put((loop, future, work))
        return future

    def stop(self) -> None:
        """Drops work that has not begun; its callers are gone. Does not wait for the rest."""
        self._has_stopped = True
        for _, future, _ in self._work.drop_waiting():
            future.cancel()
        self._end_threads()
        atexit.unregister(self._end)

    def _end_threads(self) -> None:
        for _ in self._threads:
            self._work.put(None)

    def _end(self) -> None:
        """Waits for all work, at the end of the process."""
        self._end_threads()
        for thread in self._threads:
            thread.join()


_Work = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


def _do_work(queue: WorkQueue[_Work]) -> None:
    """Does what the queue brings, until None."""
    taker: Taker[_Work] = Taker()
    while (piece := queue.take(taker)) is not None:
        loop, future, work = piece
        if not future.cancelled():
            settle: Callable[[], object]
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - handed to who waits
                settle = partial(_fail, future, error)
            else:
                settle = partial(_resolve, future, result)
                del result
            with contextlib.suppress(RuntimeError):  # the loop has ended, and who waited with it
                loop.call_soon_threadsafe(settle)
            del settle
        del piece, loop, future, work  # kept alive no longer than needed


def _resolve(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


DISK: Final = Workers("disk", 4)
"""Whatever waits for the disk: flushes, checkpoints, partitions that are created and removed."""
BESIDE_THE_LOOP: Final = Workers("beside-the-loop", 1)
"""Whatever needs the interpreter for long: encoding many rows, importing modules. One thread: each
further one would take its share of the interpreter from the event loop."""


def start_workers() -> None:
    """Starts the threads that every broker has. Raises `OutOfThreadsError`."""
    DISK.start()
    BESIDE_THE_LOOP.start()
