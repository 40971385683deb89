"""One application as a process, and the lines that it prints."""

from __future__ import annotations

import atexit
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.applications.tools import JARS
from tests.toolchain import require

_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_PATIENCE_S: Final = 300.0
_ASK_AGAIN_S: Final = 0.05
_SHOWN: Final = 3000


class Program:
    """Started from its command; `kill` sends SIGKILL. It may be started again."""

    def __init__(self, directory: Path, *command: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._command = command
        self._output = directory / "output"
        self._errors = directory / "errors"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it; what it prints is added to what earlier processes printed."""
        with self._output.open("ab") as output, self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
            )
        atexit.register(self._process.kill)  # for a test that fails

    def kill(self) -> None:
        """Sends SIGKILL, as in a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            atexit.unregister(self._process.kill)
            self._process = None

    def wait(self) -> int:
        """Waits until it ends by itself; returns the exit status."""
        assert self._process is not None
        return self._process.wait(_PATIENCE_S)

    @property
    def lines(self) -> Sequence[str]:
        """Everything that was printed in whole lines."""
        return _whole_lines(self._output)

    @property
    def error_lines(self) -> Sequence[str]:
        """Everything that was printed as errors in whole lines."""
        return _whole_lines(self._errors)

    def wait_until(
        self, is_so: Callable[[], bool], what: str, within_s: float = _PATIENCE_S
    ) -> None:
        """Polls until it is so; fails if the application ends before."""
        deadline = time.monotonic() + within_s
        while not is_so():
            assert self._process is not None
            status = self._process.poll()
            assert status is None, f"ended with {status} before {what}\n{self.said()}"
            assert time.monotonic() < deadline, f"not within {within_s} s: {what}\n{self.said()}"
            time.sleep(_ASK_AGAIN_S)

    def said(self) -> str:
        """The ends of both outputs."""
        return "\n".join(path.read_text()[-_SHOWN:] for path in (self._output, self._errors))


def _whole_lines(path: Path) -> Sequence[str]:
    text = path.read_text()
    return text[: text.rfind("\n") + 1].splitlines()


class Application(Program):
    """A Java application, started from its main class."""

    def __init__(
        self,
        directory: Path,
        main_class: str,
        *arguments: str,
        jars: Path = JARS,
        classes: Path | None = None,
    ) -> None:
        """`classes` are found before `jars`: one application with the jars of several versions."""
        require("applications" if jars is JARS else "streams-4")
        super().__init__(
            directory,
            *("java", *_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
            *("-cp", f"{classes or jars}:{jars}/*", main_class, *arguments),
        )


class ToolRunner:
    """Kafka's command-line tools, one after the other in one JVM: each start would take seconds."""

    def __init__(self, directory: Path, jars: Path = JARS) -> None:
        """`jars` may be those of another version of Kafka than that of the applications."""
        require("applications")
        directory.mkdir(parents=True, exist_ok=True)
        self._errors = (directory / "errors").open("w+b")
        self._process = subprocess.Popen(
            ["java", *_JVM, "-cp", f"{JARS}/classes:{jars}/*", "echoless.Tools"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def run(self, main_class: str, *arguments: str) -> list[str]:
        """The lines that the tool prints; what it prints as an error is among them."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(main_class, *arguments, sep="\t", file=self._process.stdin, flush=True)
        found: list[str] = []
        for line in self._process.stdout:
            if line == "\4\n":
                return found
            found.append(line.rstrip())
        self._errors.seek(0)
        raise AssertionError(
            f"{main_class} {arguments} ended the JVM: {self._errors.read()[-_SHOWN:]!r}"
        )

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()
