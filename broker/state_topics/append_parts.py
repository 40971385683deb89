"""The parts of the broker that appends to all partitions of internal topics share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from echoless.broker.metrics import Metrics
from echoless.storage.file_system import StorageError


class AppendParts(NamedTuple):
    """The clocks, the counters and the ends that all partitions have in common."""

    now_ms: Callable[[], int]
    """The steady clock of the data directory."""
    wall_ms: Callable[[], int]
    fail_storage: Callable[[StorageError], None]
    metrics: Metrics
    timeout_s: float
    """Time that records may wait to be committed."""
