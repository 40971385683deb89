"""The column `headers`: a list of names and values for each record, null for a record without any, as in Spark's source.

The first headers of all records are read in one step, then the second ones of those that have two, and so on.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from echoless.pipeline.reading.columns import HEADERS, arrow_schema_of
from echoless.pipeline.reading.record_columns import FoundRecords, taken, validity_of
from echoless.pipeline.reading.record_walk import Int64s, read_varints
from echoless.protocol.errors import DecodeError

_TYPE: Final = arrow_schema_of([HEADERS]).field(HEADERS).type


def header_lists(records: FoundRecords) -> Any:
    """Returns the Arrow array. Raises `DecodeError`."""
    data = np.frombuffer(records.data, np.uint8)
    counts, at = read_varints(data, records.value_ends)
    # A header takes two bytes at least.
    if np.any(counts < 0) or np.any(counts > (records.ends - at) // 2):
        raise DecodeError("a record has an impossible number of headers")
    edges = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=edges[1:])
    total = int(edges[-1])
    key_starts, key_ends = np.zeros((2, total), np.int64)
    value_starts, value_ends = np.zeros((2, total), np.int64)
    nulls = np.zeros(total, np.bool_)
    rows, number = np.flatnonzero(counts), 0
    ends = np.where(counts > 0, 0, at)
    at = at[rows]
    while len(rows):
        target = edges[rows] + number
        lengths, key_starts[target] = read_varints(data, at)
        if np.any(lengths < 0):
            raise DecodeError("a header has no name")
        key_ends[target] = key_starts[target] + lengths
        lengths, value_starts[target] = read_varints(data, key_ends[target])
        nulls[target] = lengths < 0
        at = value_starts[target] + np.maximum(lengths, 0)
        value_ends[target] = at
        number += 1
        ends[rows] = at
        left = counts[rows] > number
        rows, at = rows[left], at[left]
    if not np.array_equal(ends, records.ends):
        raise DecodeError("the headers of a record do not fill it")
    return _lists(records.data, edges, (key_starts, key_ends), (value_starts, value_ends), nulls)


def _lists(
    data: bytes, edges: Any, keys: tuple[Int64s, Int64s], values: tuple[Int64s, Int64s], nulls: Any
) -> Any:
    count, total = len(edges) - 1, int(edges[-1])
    names = _texts(taken(data, *keys, np.zeros(total, np.bool_)))
    contents = taken(data, *values, nulls)
    pairs = pa.Array.from_buffers(_TYPE.value_type, total, [None], children=[names, contents])
    buffers = [validity_of(np.diff(edges) == 0), pa.py_buffer(edges)]
    return pa.Array.from_buffers(_TYPE, count, buffers, children=[pairs])


def _texts(names: Any) -> Any:
    """Returns binary as text; what is not UTF-8 becomes U+FFFD, as in Java."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
