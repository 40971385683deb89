"""The stop of a process: its deadline, and what does not hold it up."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from echoless.broker.stop import STOP_S, Stop

_PROLOGUE = """
import asyncio, logging, os, sys, threading, time
import echoless.broker.stop
from echoless.broker.stop import Stop
logging.basicConfig(level="INFO", format="%(message)s")
forever = threading.Event()
stop = Stop()
stop.heed_signals()
print("ready", flush=True)
"""


@contextmanager
def process(program: str, *, deadline_s: float = STOP_S) -> Iterator[subprocess.Popen[str]]:
    """A process that heeds signals and then runs `program`."""
    prologue = _PROLOGUE.replace(
        "stop = Stop()", f"echoless.broker.stop.STOP_S = {deadline_s}\nstop = Stop()"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", prologue + program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        yield running
    finally:
        running.kill()
        running.communicate()


def ended(running: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """The exit status, and what was logged."""
    _, log = running.communicate(timeout=60)
    return running.returncode, log.splitlines()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_main_thread_that_hears_nothing(number: signal.Signals) -> None:
    """The process leaves at the deadline with 0, and says what was still running."""
    with process("forever.wait()", deadline_s=0.1) as running:
        running.send_signal(number)
        status, log = ended(running)
    assert status == 0
    assert log[0] == f"stopping: {number.name}"
    assert log[1] == "leaving, although some threads have not ended: MainThread"


def test_what_holds_the_process_is_waited_for() -> None:
    """However long it takes, and however many signals come; the log says so."""
    program = """
is_named = threading.Event()
def note(record):
    if "takes long" in record.getMessage(): is_named.set()
    return True
logging.getLogger("echoless.broker.stop").addFilter(note)
with stop.holding("closing the logs"):
    print("holding", flush=True)
    is_named.wait()
    print("closed", flush=True)
forever.wait()
"""
    prologue_patch = "echoless.broker.stop._REMIND_S = 0.05\necholess.broker.stop._LATE_S = 0.1\n"
    with process(prologue_patch + program, deadline_s=0.1) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "holding\n"
        running.send_signal(signal.SIGTERM)
        running.send_signal(signal.SIGTERM)
        running.send_signal(signal.SIGINT)
        assert running.stdout.readline() == "closed\n"
        status, log = ended(running)
    assert status == 0
    assert log[0] in {"stopping: SIGTERM", "stopping: SIGINT"}
    assert log[1] == "closing the logs takes long; the process ends when that is done"


def test_a_thread_that_does_not_end() -> None:
    """It is abandoned soon after everything else has ended, and the exit code is the one given."""
    program = """
threading.Thread(target=forever.wait, name="a lookup").start()
stop.end(1)
"""
    with process(program) as running:
        status, log = ended(running)
    assert status == 1
    (line,) = log
    assert line.startswith("leaving, although some threads have not ended: ")
    assert "a lookup" in line


def test_a_process_that_ends_in_order() -> None:
    """Says nothing of threads."""
    with process("stop.end(3)\nsys.exit(3)") as running:
        assert ended(running) == (3, [])


async def test_work_that_comes_before_the_stop() -> None:
    """Its result is returned, its error raised."""
    stop = Stop()
    stop.attach()
    assert await stop.unless_asked(asyncio.sleep(0, "done")) == "done"
    with pytest.raises(ZeroDivisionError):
        await stop.unless_asked(_fail())


async def test_work_that_the_stop_interrupts() -> None:
    """It is cancelled, and has ended, before the caller continues.

    An error on the way is no failure.
    """
    for is_first in (True, False):
        stop, seen = Stop(), list[str]()
        if is_first:
            stop._deadline_s = 0.0  # a signal before there was a loop
        stop.attach()
        if not is_first:
            stop._deadline_s = 0.0
            asyncio.get_running_loop().call_soon(stop.asked.set)
        assert await stop.unless_asked(_note_the_end(seen)) is None
        assert seen == ["cancelled"]
    assert await stop.unless_asked(_fail()) is None


async def _note_the_end(seen: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        seen.append("cancelled")
        raise


async def _fail() -> None:
    raise ZeroDivisionError


def test_shares_of_the_deadline() -> None:
    """A step gets what is left less what the next ones need, and never less than nothing."""
    stop = Stop()
    assert stop.left_s() == STOP_S
    assert stop.left_s(reserve_s=1.0) == STOP_S - 1.0
    assert stop.left_s(reserve_s=2 * STOP_S) == 0.0
