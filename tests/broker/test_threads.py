"""The threads of the process: started at once, and nothing later depends on a new one."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from echoless.broker.threads import OutOfThreadsError, Workers, start_thread

BROKER = Path(__file__).parents[2] / "broker"
STARTERS = {"Thread", "ThreadPoolExecutor", "to_thread", "run_in_executor"}


@pytest.mark.slow
def test_nothing_starts_threads_elsewhere() -> None:
    """The loop's own pool starts threads when they are needed, and fails when there are none."""
    found = {
        f"{path.relative_to(BROKER)}: {name}"
        for path in BROKER.rglob("*.py")
        if path.name != "threads.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        for name in [getattr(node.func, "attr", getattr(node.func, "id", ""))]
        if name in STARTERS
    }
    assert found == set()


async def test_started_workers_need_no_other_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are there at once."""
    workers = Workers("three", 3)
    workers.start()
    monkeypatch.setattr(threading, "_start_new_thread", refuse)
    names = {await workers.run(lambda: threading.current_thread().name) for _ in range(20)}
    assert names <= {"three_0", "three_1", "three_2"}
    workers.stop()


async def test_workers_hand_back_results_and_errors() -> None:
    """Each to the caller whose work it was."""
    workers = Workers("pair", 2)
    results = await asyncio.gather(
        *(workers.run(partial(square, n)) for n in range(-2, 3)), return_exceptions=True
    )
    assert [repr(one) for one in results] == ["ValueError(-2)", "ValueError(-1)", "0", "1", "4"]
    workers.stop()


async def test_work_that_no_one_waits_for_is_not_begun() -> None:
    """Cancelled while it was in the queue; a caller that leaves later disturbs nothing."""
    workers, may_end, done = Workers("one", 1), threading.Event(), []
    first = asyncio.ensure_future(workers.run(may_end.wait))
    second = asyncio.ensure_future(workers.run(partial(done.append, 2)))
    await asyncio.sleep(0)
    second.cancel()
    first.cancel()
    await asyncio.wait((first, second))
    may_end.set()
    await workers.run(partial(done.append, 3))
    assert done == [3]
    workers.stop()


async def test_stopped_workers_drop_what_waits_and_take_nothing_more() -> None:
    """The work that has begun goes on, and its thread ends after it."""
    workers, begun, may_end, done = Workers("one", 1), threading.Event(), threading.Event(), []
    first = asyncio.ensure_future(workers.run(lambda: begun.set() or may_end.wait()))
    second = asyncio.ensure_future(workers.run(partial(done.append, 2)))
    await asyncio.sleep(0)
    begun.wait()
    workers.stop()
    with pytest.raises(asyncio.CancelledError):
        await second
    may_end.set()
    assert await first
    with pytest.raises(RuntimeError, match="the threads 'one' have ended"):
        await workers.run(partial(done.append, 3))
    assert done == []


def test_the_process_ends_after_the_work_that_it_has_begun() -> None:
    """Even if no one waits for it any more, and its loop has ended."""
    program = """
import asyncio, threading, time
from echoless.broker.threads import DISK
begun = threading.Event()
async def main():
    task = asyncio.ensure_future(DISK.run(lambda: (begun.set(), time.sleep(0.2), print("done"))))
    await asyncio.sleep(0)
    begun.wait()
asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=BROKER.parent,
        check=True,
    )
    assert (ended.stdout, ended.stderr) == ("done\n", "")


def square(number: int) -> int:
    """Raises `ValueError` for a negative number."""
    if number < 0:
        raise ValueError(number)
    return number * number


def test_a_refused_thread_is_a_shortage_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """One kind of error, which names the thread."""
    monkeypatch.setattr(threading, "_start_new_thread", refuse)
    with pytest.raises(OutOfThreadsError, match=r"the thread 'one'.*ulimit -u.*pids\.max"):
        start_thread("one", print)
    with pytest.raises(OutOfThreadsError, match="the thread 'many'"):
        Workers("many", 2).start()


def refuse(*_: object) -> None:
    """Replaces the interpreter's own, under a limit of processes."""
    raise RuntimeError("can't start new thread")
