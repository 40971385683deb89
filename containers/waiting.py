"""Waits for things that a container does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_POLL_INTERVAL_S: Final = 0.2


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """Polls until it holds; an AssertionError names what did not happen."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:.0f} s"
        time.sleep(_POLL_INTERVAL_S)
