"""`python -m echoless.spark ...`, or a job of the tests, in a separate process, as a user runs it: killed, stopped, read.

A driver's JVM survives a killed driver for a moment; it belongs to its process group, and
`wait_for_group` sees its end. Python workers have their own group, and end after their JVM; the
sink has to tolerate one that still sends meanwhile.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.echoless import REPOSITORY

_TIMEOUT_S = 240.0
_PAUSE_S = 0.05
_SMALL_JVM = {"PYSPARK_SUBMIT_ARGS": "--driver-memory 1g pyspark-shell"}


class PipelineProcess:
    """One run. Use it in a `with` block: anything still running is killed at its end."""

    def __init__(
        self,
        *arguments: str,
        directory: Path,
        uses_spark: bool = True,
        module: str = "echoless.spark",
    ) -> None:
        self._arguments = (*arguments, "--master", "local[2]") if uses_spark else arguments
        self._directory = directory
        self._module = module
        self._path = {"PYTHONPATH": str(REPOSITORY)} if module.startswith("tests.") else {}

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._log = (self._directory / "log").open("a+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module, *self._arguments],
            cwd=self._directory,
            env={**os.environ, **_SMALL_JVM, **self._path},
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._signal_group(signal.SIGKILL)
        self._process.wait()
        self._log.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return (self._directory / "log").read_text()

    def wait(self) -> int:
        """For its own end; returns the exit status."""
        return self._process.wait(_TIMEOUT_S)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Waits until something holds; fails if the run ends before."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not holds():
            assert self._process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(_PAUSE_S)

    def kill(self) -> None:
        """SIGKILL to the driver, and only to it."""
        self._process.kill()
        self._process.wait()

    def terminate(self) -> int:
        """SIGTERM; returns the exit status."""
        self._process.terminate()
        return self.wait()

    def wait_for_group(self) -> None:
        """Waits until the JVM has noticed that its driver is gone."""
        deadline = time.monotonic() + _TIMEOUT_S
        while self._signal_group(0):
            assert time.monotonic() < deadline, self.output
            time.sleep(_PAUSE_S)

    def _signal_group(self, number: int) -> bool:
        """Whether there was a process left to take it."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        return True
