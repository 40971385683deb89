"""The threads of the process: started at once, and nothing later depends on a new one."""

from __future__ import annotations

import ast
import threading
from pathlib import Path

import pytest

from broker.threads import OutOfThreadsError, Workers, start_thread

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
