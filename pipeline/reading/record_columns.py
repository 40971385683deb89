"""Arrow columns from the records of many batches, without a Python object for a record.

One record (`docs/formats/record-batch.md`; numbers are zigzag varints):

    length | attributes i8 | timestamp delta | offset delta | key length, key | value length, value |
    header count | per header: key length, key, value length, value           (length -1: null)

numpy reads each number of all records in one step. Keys and values are copied by Arrow: the bytes are seen as one binary array whose
elements are by turns what is wanted and what lies between, of which `take` copies the wanted ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from echoless.pipeline.reading.record_walk import (
    Bytes,
    Int64s,
    RecordArea,
    find_records,
    read_varints,
)
from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import RECORD_BYTES_MIN


class FoundRecords(NamedTuple):
    """Records of some batches, found but not copied yet: positions among the bytes, one row for each record."""

    data: bytes
    timestamp_deltas: Int64s
    offset_deltas: Int64s
    key_starts: Int64s
    key_ends: Int64s
    value_starts: Int64s
    value_ends: Int64s
    """A null starts and ends at the same place, and is in `null_keys` or `null_values`."""
    null_keys: Any
    null_values: Any
    """Arrays of booleans."""
    ends: Int64s

    def keys(self) -> Any:
        """An Arrow array of binary."""
        return taken(self.data, self.key_starts, self.key_ends, self.null_keys)

    def values(self) -> Any:
        """An Arrow array of binary."""
        return taken(self.data, self.value_starts, self.value_ends, self.null_values)

    def rows(self, wanted: Any) -> FoundRecords:
        """Returns the records that an array of booleans, or a slice, names."""
        data, *columns = self
        return FoundRecords(data, *(column[wanted] for column in columns))


def find_columns(data: bytes, areas: Sequence[RecordArea]) -> FoundRecords:
    """Finds the fields of all records of the areas, in their order. Raises `DecodeError`."""
    for area in areas:
        if area.record_count * RECORD_BYTES_MIN > area.end - area.start:
            raise DecodeError(
                f"{area.record_count} records cannot fit in {area.end - area.start} bytes"
            )
    array = np.frombuffer(data, np.uint8)
    heads = find_records(data, areas)
    lengths, bodies = read_varints(array, heads)
    ends = bodies + lengths
    _check_ends(heads, ends, areas)
    timestamp_deltas, at = read_varints(array, bodies + 1)
    offset_deltas, at = read_varints(array, at)
    key_starts, key_ends, null_keys = _read_field(array, at)
    value_starts, value_ends, null_values = _read_field(array, key_ends)
    if np.any(lengths < 0) or np.any(value_ends >= ends):
        raise DecodeError("a record is shorter than its fields")
    return FoundRecords(
        data,
        timestamp_deltas,
        offset_deltas,
        key_starts,
        key_ends,
        value_starts,
        value_ends,
        null_keys,
        null_values,
        ends,
    )


def _check_ends(heads: Int64s, ends: Int64s, areas: Sequence[RecordArea]) -> None:
    """Checks that each record begins where the one before ends, and the last one of a batch ends with it."""
    counts = np.array([area.record_count for area in areas], np.int64)
    limits = np.append(heads[1:], 0)
    lasts = np.cumsum(counts) - 1
    limits[lasts] = [area.end for area in areas]
    if not np.array_equal(ends, limits):
        raise DecodeError("the records of a batch do not fill it")


def _read_field(data: Bytes, at: Int64s) -> tuple[Int64s, Int64s, Any]:
    """Reads a length, -1 for a null; returns where the bytes start and end, and which are null."""
    lengths, starts = read_varints(data, at)
    nulls = lengths < 0
    return starts, starts + np.maximum(lengths, 0), nulls


def taken(data: bytes, starts: Int64s, ends: Int64s, nulls: Any) -> Any:
    """Copies ranges of bytes, in rising order, into an Arrow array of binary; raises `DecodeError`."""
    count = len(starts)
    edges = np.empty(2 * count + 1, np.int32)
    edges[0:-1:2] = starts
    edges[1::2] = ends
    edges[-1] = ends[-1] if count else 0
    if edges[0] < 0 or np.any(edges[1:] < edges[:-1]) or edges[-1] > len(data):
        raise DecodeError("the fields of a record overlap")
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
    return pieces.take(_indices(count, nulls))


def _indices(count: int, nulls: Any) -> Any:
    """Even numbers, null where the element is to be null."""
    numbers = pa.py_buffer(np.arange(0, 2 * count, 2, dtype=np.int32))
    validity = validity_of(nulls)
    return pa.Array.from_buffers(pa.int32(), count, [validity, numbers])


def validity_of(nulls: Any) -> Any:
    """Returns Arrow's bits for an array of booleans that says which rows are null; None if none is."""
    if not nulls.any():
        return None
    return pa.py_buffer(np.packbits(~nulls, bitorder="little"))
