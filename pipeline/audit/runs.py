"""Runs: unbroken sequences of one producer, many batches in one row.

A sound log has one run for each producer and epoch, so judging runs instead of batches leaves little to sort. Tasks
merge the batches that they read, and the runs of all tasks are merged once more; both times between neighbours only,
so the outcome does not depend on where the log was cut.

Invariant: no batch of the same producer lies between two batches of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from echoless.pipeline.audit.arrow_rows import Flags, booleans, integers, schema_of, starts_of
from echoless.protocol.sequence import SEQUENCE_MAX

_OF_GROUPS: Final = "__consumer_offsets"
PARTITION_KEY: Final = ("replica", "topic", "partition")
PRODUCER_KEY: Final = (*PARTITION_KEY, "producer_id")
LOG_ORDER: Final = ("file", "position", "base_offset")
"""Columns that sort one partition's rows in log order: file names are offsets of 20 digits."""


class SequenceRun(NamedTuple):
    """Batches of one producer and epoch in which each sequence follows the one before."""

    replica: str
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    file: str | None
    """File of the first batch; null if it was read from a cluster."""
    position: int | None
    base_offset: int
    last_offset: int
    base_sequence: int
    last_sequence: int
    sequences: int
    """Number of sequences, which the two ends do not give if sequences have wrapped."""
    batches: int
    first_timestamp: int
    """Max timestamp of the first batch, in ms."""
    last_timestamp: int


RUN_SCHEMA: Final = schema_of(SequenceRun)


def runs_of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the runs in pieces of a log, whose rows are in file order."""
    for batch in batches:
        numbered = _numbered_batches(batch)
        if numbered.num_rows:
            yield _merge(numbered, starts_of(numbered, ("piece", "producer_id")))


def merged_runs(runs: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merges runs that continue each other; they are sorted by `PRODUCER_KEY` and `LOG_ORDER`."""
    for batch in runs:
        if batch.num_rows:
            yield _merge(batch, starts_of(batch, PRODUCER_KEY))


def _numbered_batches(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Makes a run of each undamaged batch with a sequence, sorted by piece and producer.

    A piece is a part of the log without a hole: between pieces other tasks may have batches.
    """
    pieces = np.cumsum(piece_starts(batch))
    producers = integers(batch, "producer_id")
    has_sequence = (producers >= 0) & (integers(batch, "base_sequence") >= 0)
    # Kafka's coordinator of groups writes sequence 0 again and again, into offsets that are committed in transactions.
    has_sequence &= pc.not_equal(batch.column("topic"), _OF_GROUPS).to_numpy(zero_copy_only=False)
    chosen = np.flatnonzero(has_sequence & booleans(batch, "crc_ok"))
    order = chosen[np.lexsort((producers[chosen], pieces[chosen]))]
    rows = batch.take(pa.array(order))
    own = {
        "sequences": integers(rows, "last_offset") - integers(rows, "base_offset") + 1,
        "batches": np.ones(len(order), np.int64),
        "first_timestamp": integers(rows, "max_timestamp"),
        "last_timestamp": integers(rows, "max_timestamp"),
    }
    arrays = [
        pa.array(own[field.name]) if field.name in own else rows.column(field.name).cast(field.type)
        for field in RUN_SCHEMA
    ]
    runs = pa.RecordBatch.from_arrays(arrays, schema=RUN_SCHEMA)
    return runs.append_column("piece", pa.array(pieces[order]))


def piece_starts(batch: pa.RecordBatch) -> Flags:
    """Marks the rows that do not directly follow the one before: in another file, or not adjacent."""
    starts = starts_of(batch, (*PARTITION_KEY, "file"))
    positions, offsets = integers(batch, "position"), integers(batch, "base_offset")
    ends = positions + integers(batch, "bytes")
    next_offsets = integers(batch, "last_offset") + 1
    adjoins = np.where(
        positions[1:] < 0, offsets[1:] == next_offsets[:-1], positions[1:] == ends[:-1]
    )
    starts[1:] |= ~adjoins
    return starts


def _merge(runs: pa.RecordBatch, starts: Flags) -> pa.RecordBatch:
    """Merges neighbours that continue each other, but no row that `starts` marks into the one before."""
    epochs = integers(runs, "producer_epoch")
    expected = (integers(runs, "last_sequence") + 1) & SEQUENCE_MAX
    breaks = starts.copy()
    breaks[1:] |= epochs[1:] != epochs[:-1]
    breaks[1:] |= integers(runs, "base_sequence")[1:] != expected[:-1]
    firsts = np.flatnonzero(breaks)
    lasts = np.append(firsts[1:], runs.num_rows) - 1
    of_first, of_last = runs.take(pa.array(firsts)), runs.take(pa.array(lasts))
    merged = {
        "sequences": np.add.reduceat(integers(runs, "sequences"), firsts),
        "batches": np.add.reduceat(integers(runs, "batches"), firsts),
        "last_timestamp": np.maximum.reduceat(integers(runs, "last_timestamp"), firsts),
    }
    arrays = [
        pa.array(merged[name])
        if name in merged
        else (of_last if name in ("last_offset", "last_sequence") else of_first).column(name)
        for name in RUN_SCHEMA.names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RUN_SCHEMA)
