"""A test that hangs fails by name, wherever it hangs, and the run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

_REPOSITORY = Path(__file__).parents[2]
_CONFTEST = """
import subprocess
import pytest, uvloop
from tests.support.time_limit import TimeLimit

def pytest_configure(config):
    config.addinivalue_line("markers", "time_limit(seconds)")
    config.pluginmanager.register(TimeLimit(config, limit_s=0.8, grace_s=1.2))

def pytest_asyncio_loop_factories():
    return {"uvloop": uvloop.new_event_loop}

@pytest.fixture
def child():
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()
    print("child ended:", process.returncode)
"""
_HANGING = """
import asyncio, ctypes, signal, threading, time
import pytest
from hypothesis import given, strategies

async def forgotten_peer():
    await asyncio.Event().wait()

async def test_awaits(child):
    peer = asyncio.create_task(forgotten_peer(), name="peer")
    await peer

async def test_never_awaits():
    while True:
        pass

async def test_spins():
    while True:
        await asyncio.sleep(0)

def test_sleeps(child):
    time.sleep(1000)

def test_swallows():
    for _ in range(2):
        try:
            threading.Event().wait()
        except BaseException:
            pass

@given(strategies.integers())
async def test_example_awaits(number):
    await asyncio.sleep(1000)

@pytest.fixture
def slow_fixture():
    yield
    time.sleep(1000)

def test_in_teardown(slow_fixture):
    pass

@pytest.mark.time_limit(30)
def test_may_take_longer():
    time.sleep(1)

async def test_is_quick():
    pass
"""
_HELD = """
import ctypes, signal

def test_before():
    pass

def test_held_in_c():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    ctypes.CDLL(None).sleep(1000)

def test_after():
    pass
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(_REPOSITORY))
    pytester.makeconftest(_CONFTEST)
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function")
    return pytester


def test_a_hanging_test_fails_and_the_next_one_runs(inner: pytest.Pytester) -> None:
    """Coroutines under uvloop, loops that never await, sleeping and swallowing code, examples, fixtures."""
    inner.makepyfile(_HANGING)
    result = inner.runpytest_subprocess("-p", "no:cacheprovider", timeout=60)
    result.assert_outcomes(failed=6, errors=1, passed=3)
    names = ("awaits", "never_awaits", "spins", "sleeps", "swallows", "example_awaits")
    result.stdout.fnmatch_lines_random(
        [f"*test_{name} (call) took more than 0.8 s" for name in names]
        + ["*test_in_teardown (teardown) took more than 0.8 s"],
    )


@pytest.mark.parametrize("name", ["awaits", "sleeps"])
def test_the_failure_shows_what_was_going_on(inner: pytest.Pytester, name: str) -> None:
    """Stacks, tasks, child processes; the child that the test's fixture started is ended."""
    inner.makepyfile(_HANGING)
    result = inner.runpytest_subprocess("-p", "no:cacheprovider", "-k", f"test_{name}", timeout=60)
    seen = ["*--- thread MainThread*", "*--- process * sleep 1000*", "*child ended: -9*"]
    if name == "awaits":
        seen += ["*--- task peer*", "*in forgotten_peer*"]
    result.stdout.fnmatch_lines_random(seen)


def test_a_process_that_runs_no_signal_handler_is_replaced(inner: pytest.Pytester) -> None:
    """The run ends, every other test ran, and the one that hung was started once."""
    inner.makepyfile(_HELD)
    result = inner.runpytest_subprocess(
        "-p", "no:cacheprovider", *("-n", "1", "--dist", "loadfile")
    )
    result.assert_outcomes(failed=1, errors=1, passed=2)
    result.stdout.fnmatch_lines(["FAILED*test_held_in_c*", "ERROR*test_held_in_c*"])
    result.stderr.fnmatch_lines(["*test_held_in_c (call) took too long*", "*in test_held_in_c*"])
