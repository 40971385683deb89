"""Extents: parts of a log without a fault in offsets or bytes, one row each.

As with runs, tasks merge the batches that they read, so that little has to be sorted and judged one by one: a sound
log makes one extent for each piece that is read at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from echoless.pipeline.audit.arrow_rows import (
    Flags,
    Integers,
    booleans,
    integers,
    schema_of,
    starts_of,
)
from echoless.pipeline.audit.runs import PARTITION_KEY
from echoless.protocol.record_batch import CONTROL_BIT


class Extent(NamedTuple):
    """Neighbouring batches whose offsets never overlap or decrease; or one batch with a fault."""

    replica: str
    topic: str
    partition: int
    file: str | None
    position: int | None
    base_offset: int | None
    """First offset; null, like the other numbers, if the bytes are not a batch."""
    last_offset: int | None
    leader_epoch: int | None
    """Leader epoch of the first batch."""
    last_leader_epoch: int | None
    holes: int
    """Number of holes: ranges of missing offsets between the batches."""
    missing: int
    """Number of offsets missing in all holes."""
    hole_start: int | None
    """First offset of the first hole; null without one."""
    hole_end: int | None
    batches: int
    records: int
    """Number of records, without those of control batches."""
    markers: int
    """Number of markers that end transactions."""
    sparse: int
    """Number of batches with fewer records than offsets, as only compaction leaves them."""
    bytes: int
    first_timestamp: int | None
    """Smallest timestamp in ms that is not -1; null if there is none."""
    last_timestamp: int | None
    fault: str | None
    """Fault of the batch: one of the `FAULT_` names below; null if it has none."""
    damage: str | None


FAULT_CRC: Final = "crc"
FAULT_DAMAGE: Final = "damage"
FAULT_RECORD_COUNT: Final = "record_count"
"""A valid header that counts more records than offsets, or fewer than none; compaction leaves fewer than offsets."""

EXTENT_SCHEMA: Final = schema_of(Extent)
_NO_TIME: Final = np.iinfo(np.int64).max


def extents_of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the extents of batches; those that follow each other in a log are merged."""
    for batch in batches:
        if batch.num_rows:
            yield _merge(batch)


def _merge(batch: pa.RecordBatch) -> pa.RecordBatch:
    faults = _faults(batch)
    firsts = np.flatnonzero(_breaks(batch, faults))
    lasts = np.append(firsts[1:], batch.num_rows) - 1
    of_first, of_last = batch.take(pa.array(firsts)), batch.take(pa.array(lasts))
    is_readable = ~(of_first.column("damage").is_valid().to_numpy(zero_copy_only=False))
    times = integers(batch, "base_timestamp"), integers(batch, "max_timestamp")
    earliest = np.minimum(*(np.where(time < 0, _NO_TIME, time) for time in times))
    first_timestamps = np.minimum.reduceat(earliest, firsts)
    last_timestamps = np.maximum.reduceat(times[1], firsts)
    own = {
        "last_offset": of_last.column("last_offset"),
        "last_leader_epoch": of_last.column("leader_epoch"),
        **_holes(batch, firsts),
        "batches": pa.array(np.where(is_readable, lasts - firsts + 1, 0)),
        **_counts(batch, firsts),
        "bytes": pa.array(np.add.reduceat(integers(batch, "bytes"), firsts)),
        "first_timestamp": pa.array(first_timestamps, mask=first_timestamps == _NO_TIME),
        "last_timestamp": pa.array(last_timestamps, mask=last_timestamps < 0),
        "fault": faults.take(pa.array(firsts)),
    }
    arrays = [
        (own[field.name] if field.name in own else of_first.column(field.name)).cast(field.type)
        for field in EXTENT_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=EXTENT_SCHEMA)


def _counts(batch: pa.RecordBatch, firsts: Integers) -> dict[str, pa.Array]:
    """Returns the columns that count something in each batch."""
    counts = integers(batch, "count")
    attributes = integers(batch, "attributes")
    is_control = (attributes > 0) & ((attributes & CONTROL_BIT) != 0)
    spans = integers(batch, "last_offset") - integers(batch, "base_offset") + 1
    columns = {
        "records": np.where(is_control, 0, np.maximum(counts, 0)),
        "markers": integers(batch, "marker") >= 0,
        "sparse": booleans(batch, "crc_ok") & (counts >= 0) & (counts < spans),
    }
    return {
        name: pa.array(np.add.reduceat(column.astype(np.int64), firsts))
        for name, column in columns.items()
    }


def _holes(batch: pa.RecordBatch, firsts: Integers) -> dict[str, pa.Array]:
    """Returns the columns that say which offsets are missing between an extent's batches."""
    offsets = integers(batch, "base_offset")
    missing = np.zeros(batch.num_rows, np.int64)
    missing[1:] = offsets[1:] - integers(batch, "last_offset")[:-1] - 1
    missing[firsts] = 0  # before an extent, so not within it
    counts = np.add.reduceat((missing > 0).astype(np.int64), firsts)
    after_holes = np.append(np.flatnonzero(missing), 0)
    first_rows = after_holes[np.searchsorted(after_holes[:-1], firsts)]
    is_whole = counts == 0
    return {
        "holes": pa.array(counts),
        "missing": pa.array(np.add.reduceat(missing, firsts)),
        "hole_start": pa.array((offsets - missing)[first_rows], mask=is_whole),
        "hole_end": pa.array(offsets[first_rows], mask=is_whole),
    }


def _faults(batch: pa.RecordBatch) -> pa.Array:
    spans = integers(batch, "last_offset") - integers(batch, "base_offset") + 1
    faults = np.full(batch.num_rows, None, object)
    counts = integers(batch, "count")
    faults[(counts > spans) | (counts < 0)] = FAULT_RECORD_COUNT
    faults[~booleans(batch, "crc_ok")] = FAULT_CRC
    faults[batch.column("damage").is_valid().to_numpy(zero_copy_only=False)] = FAULT_DAMAGE
    return pa.array(faults, pa.string())


def _breaks(batch: pa.RecordBatch, faults: pa.Array) -> Flags:
    """Marks the rows at which an extent begins: where offsets or epochs decrease, and around a fault.

    A hole is inside an extent only between batches adjacent in the file: its pieces may be read in any order.
    """
    breaks = starts_of(batch, (*PARTITION_KEY, "file"))
    offsets, next_offsets = integers(batch, "base_offset"), integers(batch, "last_offset") + 1
    epochs = integers(batch, "leader_epoch")
    positions = integers(batch, "position")
    ends = positions + integers(batch, "bytes")
    is_faulty = faults.is_valid().to_numpy(zero_copy_only=False)
    breaks |= is_faulty
    breaks[1:] |= is_faulty[:-1]
    breaks[1:] |= offsets[1:] < next_offsets[:-1]
    breaks[1:] |= (offsets[1:] != next_offsets[:-1]) & (positions[1:] != ends[:-1])
    breaks[1:] |= epochs[1:] < epochs[:-1]
    return breaks
