"""The time for which a process's first thread could have run and the machine ran others, as the kernel counts it.

A limit on a wait by the wall clock is one on the machine, too. Less this time it is one on the process.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

_LOOKS_EVERY_S: Final = 0.01
_STALL_S: Final = 0.1
"""A pause that is longer by this than it was to be is no turn of other threads here, but a stall of the machine."""


def queued_s(pid: int | str = "self") -> float:
    """Seconds since the process began; its first thread is the one with the event loop."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


class ProcessWatch:
    """Watches a process from here to its end, or to the end of the block.

    with ProcessWatch(pid) as watch:
        ...
    watch.net_s
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._queued_s = 0.0
        self._note()
        self._before_s = self._queued_s
        self._stalled_s = 0.0
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._began = time.monotonic()
        self._seconds = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._seconds = time.monotonic() - self._began
        self._has_ended.set()
        self._thread.join()

    @property
    def net_s(self) -> float:
        """Seconds of the block, less those in which the process waited for a processor or the machine stood still."""
        return self._seconds - max(self._queued_s - self._before_s, self._stalled_s)

    def _look(self) -> None:
        while True:
            began = time.monotonic()
            if self._has_ended.wait(_LOOKS_EVERY_S):
                return
            late_s = time.monotonic() - began - _LOOKS_EVERY_S
            self._stalled_s += late_s if late_s > _STALL_S else 0.0
            self._note()

    def _note(self) -> None:
        with suppress(OSError, IndexError):  # it has ended
            self._queued_s = queued_s(self._pid)
