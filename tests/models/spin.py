"""Runs spin on one check: the model becomes a C program, which goes through every state."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from tests.models.checks import Check

PROGRAMS: Final = ("spin", "gcc")
_HERE: Final = Path(__file__).parent
_COMPILE: Final = (
    *("gcc", "-O2", "-DSAFETY", "-DMEMLIM=6000", "-DVECTORSZ=2048", "-DCOLLAPSE"),
    *("-o", "pan", "pan.c"),
)
_DEPTH_MAX: Final = 1_000_000
_TIMEOUT_S: Final = 1800
_STATES: Final = re.compile(r"^\s*(\d+) states, stored", re.MULTILINE)
_ERRORS: Final = re.compile(r"errors: (\d+)")
_VIOLATED: Final = re.compile(r"assertion violated .* \(at depth \d+\)")


class ModelError(Exception):
    """A check could not be run to its end; the message says why."""


class Found(NamedTuple):
    """The outcome of a check."""

    states: int
    violation: str
    """The assertion that is violated; "" if all hold in every state."""


def run(check: Check) -> Found:
    """Checks all states. Raises `ModelError` if they do not fit into memory or time, or the model is wrong."""
    with tempfile.TemporaryDirectory(prefix="models-") as directory:
        flags = [f"-D{flag}" for flag in check.flags]
        _call(directory, ["spin", "-a", *flags, str(_HERE / check.model)])
        _call(directory, list(_COMPILE))
        said = _call(directory, ["./pan", f"-m{_DEPTH_MAX}", "-E"])
    states, errors = _STATES.search(said), _ERRORS.search(said)
    is_cut = "max search depth too small" in said or "out of memory" in said
    if states is None or errors is None or is_cut:
        raise ModelError(f"{check.name}: not every state was seen: {said[-500:]}")
    violated = _VIOLATED.search(said)
    if bool(int(errors[1])) != (violated is not None):
        raise ModelError(f"{check.name}: another error than an assertion: {said[-500:]}")
    return Found(int(states[1]), "" if violated is None else violated[0])


def _call(directory: str, command: list[str]) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelError(f"`{' '.join(command)}` failed: {error}") from error
    said = done.stdout + done.stderr
    if done.returncode or "syntax error" in said:
        raise ModelError(f"`{' '.join(command)}` failed: {said[-500:]}")
    return said
