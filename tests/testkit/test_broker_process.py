"""A broker as a test's own process: its ports, its data, its end."""

from __future__ import annotations

import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from echoless.testkit.admin import Admin, AdminError
from echoless.testkit.broker_process import BrokerProcess, BrokerStartError
from echoless.testkit.owned_directory import remove_abandoned

_PATIENCE_S = 60


@pytest.mark.slow
def test_a_killed_broker_comes_back_on_the_same_ports() -> None:
    """A producer under test need not know of a crash: the address stays, and the data too."""
    with BrokerProcess() as broker:
        addresses = broker.bootstrap_servers, broker.native, broker.admin
        broker.kill()
        assert not broker.is_running
        broker.start()
        assert (broker.bootstrap_servers, broker.native, broker.admin) == addresses
        assert Admin(broker.admin).get("/health") == {"status": "ok"}
        assert broker.stop() == 0
        assert broker.data_dir.is_dir()
    assert not broker.data_dir.exists()


@pytest.mark.slow
def test_a_broker_that_cannot_start_says_why() -> None:
    """The end of its log is in the error."""
    with (
        pytest.raises(BrokerStartError, match="num_partitions"),
        BrokerProcess({"num_partitions": "many"}),
    ):
        pass


@pytest.mark.slow
def test_an_answer_of_the_admin_port_is_the_error() -> None:
    """The URL and the broker's own words."""
    with BrokerProcess() as broker:
        with pytest.raises(AdminError, match=r"/producers/none/0.*no partition none-0") as error:
            Admin(broker.admin).get("/producers/none/0")
        assert error.value.status == 404
    with pytest.raises(AdminError, match="refused"):
        Admin(broker.admin).get("/health")


@pytest.mark.slow
def test_an_interrupted_start_leaves_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, or a time limit of the test, while the broker starts: the block has not begun, nobody would stop it."""
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def noted(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **options))
        return started[-1]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", noted)
    monkeypatch.setattr(selectors.DefaultSelector, "select", interrupted)
    with pytest.raises(KeyboardInterrupt), BrokerProcess():
        pass
    assert [process.returncode for process in started] == [-9]


_CHILD = """
import sys
from echoless.testkit.broker_process import BrokerProcess
broker = BrokerProcess()
if sys.argv[1] == "start":
    broker.start()
print(broker.data_dir.parent, flush=True)
sys.stdin.read()
"""


def _child(parent: Path, what: str) -> tuple[subprocess.Popen[bytes], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD, what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"TMPDIR": str(parent), "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().decode().strip())


@pytest.mark.slow
def test_the_directory_of_a_killed_process_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By a later start, once its broker has ended, too; not that of a process that lives, or one without a lock."""
    caplog.set_level("INFO")
    unknown = tmp_path / "echoless-testkit-unknown"
    unknown.mkdir()
    living, kept = _child(tmp_path, "make")
    killed, left = _child(tmp_path, "start")
    with living, killed:
        assert remove_abandoned(tmp_path) == []
        killed.kill()
        killed.wait()
        deadline = time.monotonic() + _PATIENCE_S
        while not (removed := remove_abandoned(tmp_path)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert removed == [left]
        assert str(left) in caplog.text
        assert sorted(tmp_path.iterdir()) == sorted([unknown, kept])
        living.kill()
        living.wait()
        later, _ = _child(tmp_path, "make")
        with later:
            assert not kept.exists()
