"""Brokers in reserve: begun before they are asked for, ended if nobody asks, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from echoless.testkit.broker_process import BrokerProcess
from echoless.testkit.reserve import BrokerReserve, WantedBroker
from tests.support.process_tree import processes_below

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

PLAIN = WantedBroker.of({}, "")
OTHER = WantedBroker.of({"num_partitions": "3"}, "")
PATIENCE_S = 60.0


def brokers(root: int | None = None) -> set[int]:
    """The broker processes below a process, this one by default."""
    below = processes_below(os.getpid() if root is None else root)
    return {one.pid for one in below if b"echoless.broker" in one.command}


def until_gone(pids: set[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, f"still there: {pids}"
        time.sleep(0.02)


@pytest.fixture
def reserve() -> Iterator[BrokerReserve]:
    """An empty one, closed at the end."""
    made = BrokerReserve()
    yield made
    made.close()


def test_a_broker_is_started_before_it_is_asked_for(reserve: BrokerReserve) -> None:
    """It is the process that was begun, and answers once it is handed out."""
    before = brokers()
    reserve.prepare([PLAIN])
    (begun,) = brokers() - before
    with reserve.take(PLAIN) as echoless:
        assert brokers() - before == {begun}
        assert echoless.topic("orders") == "orders"
    assert brokers() == before


def test_what_nobody_wants_any_more_is_ended(reserve: BrokerReserve) -> None:
    """The one that is there is kept if its settings are wanted again; two are started if two are wanted."""
    before = brokers()
    reserve.prepare([PLAIN, OTHER])
    first = brokers() - before
    reserve.prepare([OTHER, OTHER])
    second = brokers() - before
    assert len(first) == len(second) == 2
    assert len(first & second) == 1
    reserve.close()
    assert brokers() == before


def test_what_was_not_prepared_is_started_when_it_is_asked_for(reserve: BrokerReserve) -> None:
    """Settings may be known late."""
    reserve.prepare([PLAIN])
    with reserve.take(OTHER) as echoless:
        echoless.topic("t", partitions=-1)
        (topic,) = echoless.admin.get("/topics")["topics"]
        assert len(topic["partitions"]) == 3


def test_the_next_tests_broker_is_started_while_a_test_runs(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the settings of that one; none is left when pytest is done. (In a process that has no brokers of other tests.)"""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    before = brokers()
    pytester.makepyfile(
        """
        import os
        import pytest
        from tests.testkit.test_reserve import brokers

        seen = set()

        @pytest.mark.parametrize("number", range(2))
        def test_plain(echoless, number):
            own = echoless.broker._process.pid
            assert number == 0 or own in seen
            assert len(brokers()) == 2
            seen.update(brokers())

        @pytest.mark.echoless(num_partitions=3)
        def test_with_settings(echoless):
            assert echoless.broker._process.pid in seen
            assert echoless.broker.settings["num_partitions"] == "3"
            assert len(brokers()) == 1

        def test_without_a_broker():
            assert brokers() == set()
        """
    )
    result = pytester.runpytest_subprocess("-p", "echoless.testkit.plugin")
    result.assert_outcomes(passed=4)
    assert brokers() == before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_a_pytest_that_is_killed(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Neither the broker of the test that ran nor the one in reserve."""
    test = tmp_path / "test_waits.py"
    test.write_text(
        "import pathlib, time\n"
        "def test_one(echoless):\n"
        "    pathlib.Path('begun').touch()\n"
        "    time.sleep(600)\n"
        "def test_two(echoless): pass\n"
    )
    # A shell starts what runs in the background with SIGINT ignored, which children inherit.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "pytest", "-q"]
    command += ["-p", "echoless.testkit.plugin", str(test)]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as inner:
        deadline = time.monotonic() + PATIENCE_S
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        begun = brokers(inner.pid)
        inner.send_signal(number)
        inner.communicate(timeout=PATIENCE_S)
    assert len(begun) == 2
    until_gone(begun)


def test_a_broker_stops_in_order_when_its_input_ends() -> None:
    """As on SIGTERM: exit status 0, and the next start finds everything closed."""
    with BrokerProcess() as broker:
        process = broker._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0
        assert "standard input has ended" in broker.log_text()
