"""Faults inside tasks: a file named after a record makes the task that reaches it fail or slow down.

A wire trips once, for the first task to reach it: tripping renames its file. So the same task
succeeds when Spark runs it again, and a speculative twin of a slow task is quick.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

FAIL: Final = "fail"
SLOW: Final = "slow"
_TRIPPED: Final = "tripped-"
_SLOW_PIECE_S: Final = 0.15
"""A slow task's pause before each further piece of rows."""


class TaskFailedOnPurposeError(Exception):
    """Raised at a wire that makes its task fail."""


def lay(directory: Path, kind: str, number: int) -> None:
    """Lays a wire before the record `number`."""
    (directory / f"{kind}-{number}").touch()


def tripped(directory: Path, kind: str) -> int:
    """How many wires of this kind were tripped."""
    return len(list(directory.glob(f"{_TRIPPED}{kind}-*")))


def watch(batches: Iterator[pa.RecordBatch], directory: Path) -> Iterator[pa.RecordBatch]:
    """The rows unchanged, with the effects of the wires among them. Runs in the tasks."""
    is_slow = False
    for batch in batches:
        numbers = batch.column("number")
        if len(batch) == 0:
            continue
        first, last = numbers[0].as_py(), numbers[len(batch) - 1].as_py()
        for kind, number in _wires(directory, first, last):
            if not _trip(directory, kind, number):
                continue
            if kind == FAIL:
                yield batch.slice(0, number - first)
                raise TaskFailedOnPurposeError(f"at record {number}")
            is_slow = True
        if is_slow:
            time.sleep(_SLOW_PIECE_S)
        yield batch


def _wires(directory: Path, first: int, last: int) -> list[tuple[str, int]]:
    """The wires still there between two numbers, both included."""
    found = []
    for path in directory.glob("[fs]*-*"):
        kind, _, number = path.name.partition("-")
        if first <= int(number) <= last:
            found.append((kind, int(number)))
    return sorted(found, key=lambda wire: (wire[1], wire[0]))


def _trip(directory: Path, kind: str, number: int) -> bool:
    """Trips the wire; returns whether this process was the first."""
    name = f"{kind}-{number}"
    try:
        (directory / name).rename(directory / f"{_TRIPPED}{name}")
    except FileNotFoundError:
        return False
    return True
