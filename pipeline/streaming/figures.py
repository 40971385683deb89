"""Figures of a stream's progress, shown by `terminal.py` and `metrics.py`.

Records are counted batch by batch, once the sink has all acknowledgements; the lag comes from Spark's progress
reports.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

_RATE_WINDOW_S = 10.0


@dataclass(slots=True, frozen=True, kw_only=True)
class BatchFigures:
    """Figures of one written batch."""

    batch_id: int
    records: int
    bytes: int
    """Number of bytes of keys and values."""
    repeats: int
    """Number of these records that an earlier attempt had stored."""


@dataclass(slots=True)
class StreamFigures:
    """Figures of one run. Spark's thread adds batches, the main thread reads."""

    started_at: float = field(default_factory=time.monotonic)
    records: int = 0
    bytes: int = 0
    repeats: int = 0
    batches: int = 0
    batch_id: int = -1
    lag: Mapping[str, int] = field(default_factory=dict)
    """Lag of each part of the source; empty if unknown."""
    lag_unit: str = "records"
    bytes_left: int | None = None
    """Size of what waits in the source, if that is known better than its records."""
    bytes_done: int = 0
    """Size of what this run has done, in the measure of `bytes_left`."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _recent: list[tuple[float, int]] = field(default_factory=list)
    """End of recent batches, in seconds, and the number of records by then."""

    def add(self, batch: BatchFigures) -> None:
        """Adds a written batch; callable from any thread."""
        with self._lock:
            self.records += batch.records
            self.bytes += batch.bytes
            self.repeats += batch.repeats
            self.batches += 1
            self.batch_id = batch.batch_id
            self._recent.append((time.monotonic(), self.records))

    @property
    def lag_total(self) -> int | None:
        return sum(self.lag.values()) if self.lag else None

    @property
    def remaining_s(self) -> float | None:
        """Seconds that what waits will take at the present rate; None if that is not known."""
        if self.bytes_left is not None:
            rate = self.bytes_done / max(self.elapsed_s, 0.001)
            return self.bytes_left / rate if rate else None
        lag, rate = self.lag_total, self.records_per_s
        return lag / rate if lag and rate else None

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started_at

    @property
    def records_per_s(self) -> float:
        """Rate over the last ten seconds, or since the last batch but one if batches take longer."""
        now = time.monotonic()
        with self._lock:
            old = [one for one in self._recent if one[0] < now - _RATE_WINDOW_S]
            self._recent = [*old[-1:], *self._recent[len(old) :]]
            began, before = self._recent[0] if old else (self.started_at, 0)
            return (self.records - before) / max(now - began, 0.001)
