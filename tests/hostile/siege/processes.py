"""The processes of a siege besides the broker: each takes lines and ends with one line of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).parents[3]


class Helper:
    """One Python module of this package, running."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"tests.hostile.siege.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_REPOSITORY,
        )

    def wait_for_line(self) -> None:
        """Returns when it has said something, such as that it started."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), f"{self._process.args} ended at once"

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def send(self, line: str) -> None:
        """One line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def report(self, timeout_s: float) -> dict[str, Any] | None:
        """Ends its input, and waits for what it says at last; None if it ends without."""
        try:
            said, _ = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return None
        lines = said.splitlines()
        try:
            report: dict[str, Any] = json.loads(lines[-1]) if lines else None
        except json.JSONDecodeError:
            return None
        return report

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
