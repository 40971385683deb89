"""A server in a separate process, for tests: start, kill, terminate, read its log.

Both output streams go to one log file (each start appends to it), and a start returns when a line
matches the ready pattern. No test waits by the clock. A process that a test forgot is killed when
the interpreter exits.
"""

from __future__ import annotations

import atexit
import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 30.0
_LOG_LINES_SHOWN = 40


class ServerStartError(Exception):
    """The server exited, or stayed silent, before its ready line. Carries the end of its log."""


class ServerProcess:
    """One command that becomes ready, is ended, and may be started again."""

    def __init__(self, ready: re.Pattern[str], log_path: Path) -> None:
        self.log_path = log_path
        self.prefix: tuple[str, ...] = ()
        """A command prefix such as `ip netns exec NAME`, which sets up the process's environment
        and then becomes it.
        """
        self._ready = ready
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(
        self, command: Sequence[str], *, environment: dict[str, str] | None = None
    ) -> re.Match[str]:
        """Runs `command` until its ready line; returns that line's match."""
        assert self._process is None, "already running"
        self._process = subprocess.Popen(
            [*self.prefix, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **(environment or {})},
        )
        atexit.register(self._process.kill)
        assert self._process.stdout is not None
        watch = _ReadyWatch(self._ready)
        self._reader = threading.Thread(
            target=_copy_lines, args=(self._process.stdout, self.log_path, watch), daemon=True
        )
        self._reader.start()
        if not watch.decided.wait(START_TIMEOUT_S) or watch.match is None:
            self.kill()
            raise ServerStartError(f"{' '.join(command[:4])} ... did not start:\n{self.log_tail()}")
        return watch.match

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None, "not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        """The status of a process that ended by itself; None while it runs."""
        return None if self._process is None else self._process.poll()

    def kill(self) -> None:
        """Sends SIGKILL: no handler runs, as in a crash (the page cache survives)."""
        self._end(lambda process: process.kill())

    def terminate(self, within_s: float = STOP_TIMEOUT_S) -> int:
        """Sends SIGTERM; returns the exit status. Kills and raises if it takes too long."""
        return self._end(lambda process: process.terminate(), within_s)

    def pause(self) -> None:
        """Sends SIGSTOP and waits until every thread has stopped: alive, but silent.

        A thread on another core still answers for a moment after `kill` has returned.
        """
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def log(self) -> str:
        """Everything written so far, over all starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self) -> str:
        return "\n".join(deque(self.log().splitlines(), _LOG_LINES_SHOWN))

    def _end(
        self, signal_it: Callable[[subprocess.Popen[str]], None], within_s: float = STOP_TIMEOUT_S
    ) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        signal_it(process)
        try:
            return process.wait(within_s)
        finally:
            process.kill()
            process.wait()
            atexit.unregister(process.kill)
            if self._reader is not None:
                self._reader.join()


class _ReadyWatch:
    """Set once: either a line matched, or the output ended."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.decided = threading.Event()
        self.match: re.Match[str] | None = None
        self._pattern = pattern

    def see(self, line: str) -> None:
        if not self.decided.is_set() and (match := self._pattern.search(line)):
            self.match = match
            self.decided.set()


def _copy_lines(stream: IO[str], log_path: Path, watch: _ReadyWatch) -> None:
    with stream, log_path.open("a") as log:
        for line in stream:
            log.write(line)
            log.flush()
            watch.see(line)
    watch.decided.set()
