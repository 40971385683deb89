"""Ranges of offsets that tasks read, and how a range becomes several.

They are the whole plan: a task that runs again reads the same range, and the order of the tasks depends on the ranges alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class OffsetSpan(NamedTuple):
    """The offsets from `start` up to, not including, `end` of a partition."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str | None = None
    """The topic's id as text; None if the brokers have none (before 2.8)."""

    @property
    def size(self) -> int:
        """Number of offsets, which is at least that of records."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}, offsets {self.start} to {self.end}"


def split_spans(
    spans: Sequence[OffsetSpan], *, tasks_min: int | None = None, records_max: int | None = None
) -> list[OffsetSpan]:
    """Sorts the spans, without the empty ones, and divides them as Spark's source does.

    First into parts of at most `records_max` offsets; then, if these are fewer than `tasks_min`, in proportion to their size.
    """
    parts = sorted(span for span in spans if span.size > 0)
    if records_max is not None:
        parts = [
            part for span in parts for part in _divided(span, math.ceil(span.size / records_max))
        ]
    if tasks_min is None or len(parts) >= tasks_min:
        return parts
    # A span of less than one task's share stays whole, and the others share what is left.
    total = sum(span.size for span in parts)
    whole = {span for span in parts if span.size / total * tasks_min < 1}
    rest = sum(span.size for span in parts if span not in whole)
    tasks_left = max(tasks_min - len(whole), 1)
    return [
        part
        for span in parts
        for part in (
            [span]
            if span in whole
            else _divided(span, max(math.floor(span.size / rest * tasks_left + 0.5), 1))
        )
    ]


def _divided(span: OffsetSpan, count: int) -> list[OffsetSpan]:
    """Divides a span into at most `count` parts; the later ones get what does not divide evenly."""
    parts, start = [], span.start
    count = min(count, span.size)
    for number in range(count):
        left = count - number
        end = start + (span.end - start) // left
        parts.append(span._replace(start=start, end=end))
        start = end
    return parts
