"""The processes below one process, from /proc: executors, and the Python workers of their tasks."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

_EXECUTOR = b"CoarseGrainedExecutorBackend"
_PYTHON = b"pyspark.daemon"


class _Process(NamedTuple):
    pid: int
    parent: int
    command: bytes


def executors_below(root: int) -> list[int]:
    """The JVMs that run tasks."""
    return sorted(p.pid for p in _below(root) if _EXECUTOR in p.command)


def python_workers_below(root: int) -> list[int]:
    """The forked workers, without the daemons that fork them."""
    found = {p.pid: p for p in _below(root) if _PYTHON in p.command}
    return sorted(pid for pid, process in found.items() if process.parent in found)


def kill(pid: int) -> bool:
    """SIGKILL; whether it was still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def _below(root: int) -> list[_Process]:
    children: defaultdict[int, list[_Process]] = defaultdict(list)
    for process in _all():
        children[process.parent].append(process)
    found, waiting = [], [root]
    while waiting:
        some = children[waiting.pop()]
        found += some
        waiting += [process.pid for process in some]
    return found


def _all() -> list[_Process]:
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):  # it may end while we look
            # pid (name) state parent ...: the name may have spaces and brackets.
            parent = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
            command = (directory / "cmdline").read_bytes()
            found.append(_Process(int(directory.name), parent, command))
    return found
