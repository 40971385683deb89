"""Writer of batches that counts their records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as f

from echoless.pipeline.streaming.figures import BatchFigures, StreamFigures


class WriteReport(Protocol):
    """The sink's report on one Spark partition."""

    @property
    def rows(self) -> int: ...
    @property
    def rows_found(self) -> int: ...


WriteBatch = Callable[[DataFrame, int], Sequence[WriteReport]]


class CountedWriter:
    """Writes the batches of one run through the sink, and adds them to its figures."""

    def __init__(self, write: WriteBatch, figures: StreamFigures) -> None:
        self._write = write
        self._figures = figures

    def write(self, rows: DataFrame, batch_id: int) -> None:
        """Writes a batch; raises what the sink raises."""
        observation = Observation()
        counted = rows.observe(observation, f.sum(_size(rows)).alias("bytes"))
        written = self._write(counted, batch_id)
        self._figures.add(
            BatchFigures(
                batch_id=batch_id,
                records=sum(part.rows for part in written),
                bytes=observation.get["bytes"] or 0,
                repeats=sum(part.rows_found for part in written),
            )
        )


def _size(rows: DataFrame) -> Column:
    """Number of bytes of key and value."""
    sizes = (
        f.coalesce(f.octet_length(name), f.lit(0))
        for name in ("key", "value")
        if name in rows.columns
    )
    size = f.lit(0)
    for one in sizes:
        size += one
    return size
