"""Starting, ending and starting again, with a Python program as the server."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.server_process import ServerProcess, ServerStartError

READY = re.compile(r"^ready at (\w+)")
WAITS = "import signal; print('ready at home', flush=True); signal.pause()"
HAS_BUSY_THREADS = """
import threading, time
def work():
    while True: time.sleep(0.0001)
for _ in range(30): threading.Thread(target=work, daemon=True).start()
print('ready at home', flush=True)
work()
"""


def _server(tmp_path: Path) -> ServerProcess:
    return ServerProcess(READY, tmp_path / "server.log")


def test_a_start_returns_the_ready_line(tmp_path: Path) -> None:
    """The match of the ready pattern is returned, and the line is in the log."""
    server = _server(tmp_path)
    match = server.start([sys.executable, "-c", WAITS])
    assert match[1] == "home"
    assert "ready at home" in server.log()
    server.kill()


def test_a_server_that_ends_before_its_ready_line_tells_its_log(tmp_path: Path) -> None:
    """The error carries the program's last output."""
    with pytest.raises(ServerStartError, match="no luck"):
        _server(tmp_path).start([sys.executable, "-c", "print('no luck')"])


def test_a_server_starts_again_after_either_end(tmp_path: Path) -> None:
    """Kill and terminate leave it ready for another start; terminate returns the exit status."""
    server = _server(tmp_path)
    server.start([sys.executable, "-c", WAITS])
    server.kill()
    assert not server.is_running
    server.start([sys.executable, "-c", WAITS])
    assert server.terminate() != 0
    assert server.log().count("ready at home") == 2


def test_a_paused_server_has_stopped_with_every_thread(tmp_path: Path) -> None:
    """A thread that was running when the signal was sent has stopped when `pause` returns."""
    server = _server(tmp_path)
    server.start([sys.executable, "-c", HAS_BUSY_THREADS])
    for _ in range(20):
        server.pause()
        assert set(_thread_states(server.pid)) == {"T"}
        server.resume()
    server.kill()


def _thread_states(pid: int) -> list[str]:
    return [
        (task / "stat").read_text().rpartition(") ")[2][0]
        for task in Path(f"/proc/{pid}/task").iterdir()
    ]
