"""Bounds of logs that a data directory proves besides the batches: what is cut off cleanly at an end leaves no hole.

The names of the first and the last file are offsets, and the checkpoints say how far the log reached. The rules are those of
`echoless verify`. Pure: knows nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from echoless.pipeline.audit.findings import Finding, FindingKind, Severity


class LogBounds(NamedTuple):
    """Facts about a log's beginning and end besides its batches."""

    first_file: int | None = None
    """Offset in the name of the first file; None if the log is missing."""
    last_file: int | None = None
    """Offset in the name of the last file, at which the log before it ended."""
    start: int | None = None
    """Offset above which no file may be missing; None if it is not known."""
    end: int = 0
    """Offset below which everything was stored."""

    def promised_before(self, earlier: LogBounds) -> LogBounds:
        """Returns these bounds with no later end than `earlier` promised: a broker may have appended since."""
        return self._replace(
            last_file=min(self.last_file or 0, earlier.last_file or 0),
            end=min(self.end, earlier.end),
        )


def findings_about_bounds(
    key: tuple[str, str, int], bounds: LogBounds, end_offset: int | None
) -> Iterator[Finding]:
    """Yields problems about records missing at the ends of the log `key` (replica, topic, partition).

    `end_offset`: the end of its last sound batch; None without one.
    """
    first = bounds.first_file
    if first is None:
        if bounds.end:
            text = f"the log is missing, though records below {bounds.end} were stored"
            yield _missing(key, text, 0, bounds.end)
        return
    if bounds.start is not None and first > bounds.start:
        text = (
            f"the first file begins at {first}, though nothing from {bounds.start} on was deleted"
        )
        yield _missing(key, text, bounds.start, first)
    end = max(first, end_offset or 0)
    promised = max(bounds.end, bounds.start or 0)
    if (bounds.last_file or 0) > end:
        text = f"the log ends at {end}, before its last file, which begins at {bounds.last_file}"
        yield _missing(key, text, end, bounds.last_file or 0)
    elif promised > end:
        text = f"the log ends at {end}, though records below {promised} were stored"
        yield _missing(key, text, end, promised)


def _missing(key: tuple[str, str, int], text: str, start: int, end: int) -> Finding:
    return Finding(
        Severity.PROBLEM.value,  # Spark takes plain strings from the driver, no enums
        FindingKind.OFFSET_GAP.value,
        *key,
        text,
        records=end - start,
        base_offset=start,
        last_offset=end - 1,
    )
