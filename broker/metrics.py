"""What the broker counts, as plain integers.

A counter costs one addition in the hot path and knows no library; `broker/admin/exposition.py`
turns the counters into Prometheus' text when somebody asks. Everything runs on the event loop, so
there are no locks. Names end as Prometheus wants them: `_total` for what only grows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from protocol.record_batch import BatchHeader

LATENCY_BOUNDS_S: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0
)  # fmt: skip
"""Upper bounds of the latency buckets, in seconds; what is slower falls into one more."""


class Histogram:
    """How often each range of values was seen."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Per bucket, not cumulated; the last holds what exceeds every bound."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(slots=True)
class Metrics:
    """The counters of one broker since its start."""

    connections_open: int = 0
    connections_accepted_total: int = 0
    connections_refused_total: int = 0
    """Turned away because `connections_max` were open."""
    connections_idle_closed_total: int = 0

    requests: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """By the name of the API."""
    request_bytes_total: int = 0
    response_bytes_total: int = 0
    produce_seconds: Histogram = field(default_factory=Histogram)
    """From the last byte of a produce request to its response being handed to the socket."""
    fetch_bytes_total: int = 0

    batches_appended_total: int = 0
    records_appended_total: int = 0
    bytes_appended_total: int = 0
    duplicates_total: int = 0
    """Batches found in the window and acknowledged without being stored again."""
    divergent_duplicates_total: int = 0
    """Of these, the ones whose bytes differ from what was stored."""
    rejects: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Refusals of the de-duplication decision, by the name of the error code."""

    producer_ids_issued_total: int = 0
    producer_id_blocks_claimed_total: int = 0

    def appended(self, header: BatchHeader) -> None:
        """Counts one batch that was written."""
        self.batches_appended_total += 1
        self.records_appended_total += header.record_count
        self.bytes_appended_total += header.size
