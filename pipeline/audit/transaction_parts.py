"""Parts of transactions: a producer's transactional batches up to a marker, a newer epoch, or the end of what a task reads.

As with runs, tasks merge the batches that they read. Committed transactions that follow each other are one row, since
only those that were aborted, or are open, are told apart afterwards.

Invariant: between two parts that are merged into one row there was a marker of COMMIT.
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
from echoless.pipeline.audit.runs import piece_starts
from echoless.protocol.control_records import MarkerType
from echoless.protocol.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT


class TransactionPart(NamedTuple):
    """Neighbouring transactional batches of one producer, and the marker that ends them, if it was read with them."""

    replica: str
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    """Highest epoch of the batches; the marker's, if there are none."""
    first_epoch: int
    """Epoch of the first batch; -1 if a marker comes first."""
    file: str | None
    position: int | None
    base_offset: int
    last_offset: int
    """Last offset, that of the marker if there is one."""
    batches: int
    """Number of batches, without the marker."""
    records: int
    first_timestamp: int
    """Max timestamp of the first batch, in ms."""
    last_timestamp: int
    marker: int | None
    """Type of the marker: 0 ABORT, 1 COMMIT; null: what was read, or its epoch, ends without one."""
    marker_epoch: int | None


PART_SCHEMA: Final = schema_of(TransactionPart)


def parts_of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the parts of transactions in pieces of a log, whose rows are in file order."""
    for batch in batches:
        chosen = _transactional(batch)
        if len(chosen):
            yield _parts(batch, chosen)


def _transactional(batch: pa.RecordBatch) -> Integers:
    """Returns the rows that belong to transactions: batches of clients, and markers that end something."""
    attributes = integers(batch, "attributes")
    is_control = (attributes & CONTROL_BIT) != 0
    is_chosen = (attributes > 0) & ((attributes & TRANSACTIONAL_BIT) != 0)
    is_chosen &= ~is_control | (integers(batch, "marker") >= 0)
    is_chosen &= (integers(batch, "producer_id") >= 0) & booleans(batch, "crc_ok")
    return np.flatnonzero(is_chosen)


def _parts(batch: pa.RecordBatch, chosen: Integers) -> pa.RecordBatch:
    pieces, producers = np.cumsum(piece_starts(batch)), integers(batch, "producer_id")
    order = chosen[np.lexsort((producers[chosen], pieces[chosen]))]
    rows = batch.take(pa.array(order))
    begins = starts_of(
        rows.append_column("piece", pa.array(pieces[order])), ("piece", "producer_id")
    )
    firsts = _firsts(rows, begins)
    lasts = np.append(firsts[1:], rows.num_rows) - 1
    markers, epochs = integers(rows, "marker"), integers(rows, "producer_epoch")
    is_data = markers < 0
    data_epochs = np.maximum.reduceat(np.where(is_data, epochs, -1), firsts)
    batches = np.add.reduceat(is_data.astype(np.int64), firsts)
    has_none = markers[lasts] < 0
    times = integers(rows, "max_timestamp")
    own = {
        "producer_epoch": pa.array(np.where(batches > 0, data_epochs, epochs[lasts])),
        "first_epoch": pa.array(np.where(is_data, epochs, -1)[firsts]),
        "last_offset": pa.array(integers(rows, "last_offset")[lasts]),
        "batches": pa.array(batches),
        "records": pa.array(np.add.reduceat(np.where(is_data, integers(rows, "count"), 0), firsts)),
        "first_timestamp": pa.array(times[firsts]),
        "last_timestamp": pa.array(times[lasts]),
        "marker": pa.array(markers[lasts], mask=has_none),
        "marker_epoch": pa.array(epochs[lasts], mask=has_none),
    }
    of_first = rows.take(pa.array(firsts))
    arrays = [
        (own[field.name] if field.name in own else of_first.column(field.name)).cast(field.type)
        for field in PART_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=PART_SCHEMA)


def _firsts(rows: pa.RecordBatch, begins: Flags) -> Integers:
    """Returns the first row of each part; `begins` marks those of each producer and piece."""
    markers, epochs = integers(rows, "marker"), integers(rows, "producer_epoch")
    breaks = begins.copy()
    breaks[1:] |= markers[:-1] >= 0
    breaks[1:] |= (markers[1:] < 0) & (epochs[1:] > epochs[:-1])
    firsts = np.flatnonzero(breaks)
    lasts = np.append(firsts[1:], rows.num_rows) - 1
    newest = np.maximum.reduceat(np.where(markers < 0, epochs, -1), firsts)
    is_plain = (markers[lasts] == MarkerType.COMMIT) & (epochs[lasts] >= newest)
    joins = np.zeros(len(firsts), np.bool_)
    joins[1:] = is_plain[1:] & is_plain[:-1] & ~begins[firsts[1:]]
    return firsts[~joins]
