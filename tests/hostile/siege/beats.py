"""The output of `watched_broker`, and its reader in the run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BEATS_FILE = "SIEGE_BEATS"
"""The environment variable that names the file."""
DESCRIPTORS = 2000
"""File descriptors of the broker: few, so that attackers reach the limit."""
INTERVAL_S = 0.005
WINDOW_S = 0.1
STACK_AFTER_S = 0.03
"""Processor time after which the stack is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """One window of the loop."""

    at: float
    """Its end, by the monotonic clock, which all processes of a machine share."""
    held_s: float
    """Longest processor time of the loop's thread between two beats."""
    collected_s: float
    """How much of it the garbage collector took."""
    late_s: float
    """Latest beat by the wall clock."""
    own_s: float
    """Latest beat without the time in which the machine ran others."""
    queued_s: float
    """How long the loop's thread was ready to run in this window while the machine ran others."""
    yardstick_s: float
    """Processor time of a fixed piece of work on the loop's thread: the median of this window."""
    syncs: list[str]
    """The call sites of fsync on the loop's thread."""
    stack: str
    """The stack of the longest hold after `STACK_AFTER_S`; empty for a shorter one."""


def read_beats(path: Path, begin: float, end: float) -> Iterator[Beat]:
    """The windows that ended between two moments."""
    for line in path.read_text().splitlines():
        beat = Beat(**json.loads(line))
        if begin < beat.at <= end:
            yield beat
