"""One tool that some tests need and pip does not provide: how to detect it, how to get it.

`tests/toolchain.py` holds the list and prepares it; tests ask through `tests.toolchain.require`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

_PREPARE_TIMEOUT_S = 900


class ToolError(Exception):
    """A tool could not be prepared; the message is the reason shown for skipped tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A named step of the preparation."""

    name: str
    used_by: str
    """The tests that are skipped without it, in words."""
    is_present: Callable[[], bool]
    prepare: Callable[[], None]
    """Makes it present or raises ToolError."""
    needs: tuple[str, ...] = ()
    """Names of the tools that come before this one."""


def debian_program(program: str, *packages: str, used_by: str) -> Tool:
    """A program installed from Debian's packages if it is missing."""

    def is_present() -> bool:
        return shutil.which(program) is not None

    def prepare() -> None:
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            raise ToolError(f"`{program}` is not installed, and only root on Debian can install it")
        run(["apt-get", "update", "-q"])
        run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages])

    return Tool(name=program, used_by=used_by, is_present=is_present, prepare=prepare)


def run(command: list[str], *, directory: str | None = None) -> None:
    """Runs one preparing command; ToolError carries the end of its output."""
    try:
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            cwd=directory,
            timeout=_PREPARE_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        said = (error.stdout + error.stderr).strip().splitlines()[-5:]
        raise ToolError(f"`{' '.join(command)}` failed: {' | '.join(said)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"`{' '.join(command)}` failed: {error}") from error
