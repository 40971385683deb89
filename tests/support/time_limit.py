"""A pytest plugin that ends a test which takes too long, says where it hung, and lets the run go on.

Setup, call and teardown of each test may take `LIMIT_S` each, or what `@pytest.mark.time_limit(seconds)`
allows. Then:

1. SIGALRM raises `TimeLimitExceeded` in the main thread, where tests and their event loops run. The test
   fails by name, with all stacks, tasks and child processes; fixtures run their teardown.
2. Code that swallows the exception gets it again every few seconds.
3. A main thread that is held in C code runs no signal handler. After a further `GRACE_S` a thread writes
   the same report to stderr, kills the child processes and ends this process: pytest-xdist reports the
   test as failed and starts another worker, which does not run that test again.

`pytest-timeout` cannot do this: uvloop logs what its signal handler raises and goes on, and its thread
method ends a worker whose test pytest-xdist then starts again, without end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

import pytest

from tests.support.process_tree import kill, processes_below
from tests.support.stacks import describe_process

LIMIT_S: Final = 600.0
GRACE_S: Final = 60.0
MARKER: Final = "time_limit"
_ENDED: Final = "tests_that_ended_their_process"
"""Key in a worker's input: the file that lists them."""


class TimeLimitExceeded(KeyboardInterrupt):
    """Raised in the main thread, wherever it is.

    A KeyboardInterrupt, because event loops let only that and SystemExit out of a signal handler,
    `except Exception` does not swallow it, and Hypothesis does not try such an example again.
    """


class TimeLimit:
    """The limit of the test that is running in this process."""

    def __init__(
        self, config: pytest.Config, *, limit_s: float = LIMIT_S, grace_s: float = GRACE_S
    ) -> None:
        self._config = config
        self._limit_s = limit_s
        self._grace_s = grace_s
        self._stderr = os.dup(sys.stderr.fileno())  # capturing, which starts later, replaces it
        self._running = "no test"
        self._ends_process_at = float("inf")
        self._stopped = threading.Event()
        self._reports: list[str] = []
        self._ended = _file_of_ended_tests(config)

    def pytest_sessionstart(self) -> None:
        """Start to watch: in the process, and in the main thread, that runs the tests."""
        signal.signal(signal.SIGALRM, self._raise)
        threading.Thread(target=self._watch, name="time limit", daemon=True).start()

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        self._stopped.set()
        if not hasattr(config, "workerinput"):
            self._ended.unlink(missing_ok=True)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Limit the fixtures' setup. Refuse a test that ended its process the last time."""
        if self._ended.exists() and item.nodeid in self._ended.read_text().splitlines():
            pytest.fail("it ended its process when it ran before; not run again", pytrace=False)
        with self._limited(item, "setup"):
            return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Limit the test itself."""
        with self._limited(item, "call"):
            return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Limit the fixtures' teardown."""
        with self._limited(item, "teardown"):
            return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell each worker where the tests that ended one are listed."""
        node.workerinput[_ENDED] = str(self._ended)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str) -> None:
        """List a test that ended its worker; pytest-xdist would start it again in the next one."""
        with self._ended.open("a") as file:
            file.write(f"{crashitem}\n")

    @contextmanager
    def _limited(self, item: pytest.Item, phase: str) -> Iterator[None]:
        marker = item.get_closest_marker(MARKER)
        limit_s = float(marker.args[0]) if marker else self._limit_s
        self._running = f"{item.nodeid} ({phase})"
        self._reports.clear()
        self._ends_process_at = time.monotonic() + limit_s + self._grace_s
        signal.setitimer(signal.ITIMER_REAL, limit_s, self._grace_s / 6)
        try:
            try:
                yield
            finally:
                self._disarm()
        except TimeLimitExceeded:
            self._disarm()  # it may have been raised in the line above
            self._fail(limit_s)
        if self._reports:  # the test swallowed it, and ended
            self._fail(limit_s)

    def _fail(self, limit_s: float) -> NoReturn:
        pytest.fail(f"{self._running} took more than {limit_s:g} s\n{self._reports[0]}")

    def _disarm(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._ends_process_at = float("inf")

    def _raise(self, _number: int, _frame: FrameType | None) -> None:
        self._reports.append(describe_process(asyncio._get_running_loop()))
        raise TimeLimitExceeded(self._running)

    def _watch(self) -> None:
        while not self._stopped.wait(self._grace_s / 12):
            if time.monotonic() > self._ends_process_at:
                self._end_process()

    def _end_process(self) -> None:
        text = f"\n{self._running} took too long and could not be ended; ending its process\n"
        os.write(self._stderr, f"{text}{describe_process()}\n".encode())
        for process in processes_below(os.getpid()):
            kill(process.pid)
        os._exit(os.EX_SOFTWARE)


def _file_of_ended_tests(config: pytest.Config) -> Path:
    workerinput = getattr(config, "workerinput", None)
    if workerinput is not None:
        return Path(workerinput[_ENDED])
    return Path(tempfile.gettempdir()) / f"pytest-ended-tests-{os.getpid()}"
