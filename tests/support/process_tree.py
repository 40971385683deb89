"""The processes below one process, from /proc."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """One process; `command` is its arguments, each followed by a zero byte."""

    pid: int
    parent: int
    command: bytes


def kill(pid: int) -> bool:
    """Sends SIGKILL; returns whether the process was still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def processes_below(root: int) -> list[Process]:
    """The children of `root`, their children, and so on; parents come first."""
    children: defaultdict[int, list[Process]] = defaultdict(list)
    for process in _all():
        children[process.parent].append(process)
    found, waiting = [], [root]
    while waiting:
        some = children[waiting.pop()]
        found += some
        waiting += [process.pid for process in some]
    return found


def _all() -> list[Process]:
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):  # it may end while we look
            # pid (name) state parent ...: the name may have spaces and brackets.
            parent = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
            command = (directory / "cmdline").read_bytes()
            found.append(Process(int(directory.name), parent, command))
    return found
