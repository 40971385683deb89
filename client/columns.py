"""Rows as Arrow columns, and the lengths and positions of the byte strings in a column.

Needs numpy and pyarrow (the extra `spark`), as do the files named `column_*.py`; the rest of the
package does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from echoless.client.batch import RECORD_BYTES
from echoless.protocol.record_batch import Buffer

Int64s = npt.NDArray[np.int64]

_NULL_LENGTH: Final = -1


class Columns(NamedTuple):
    """Consecutive rows of one partition, made by `columns`."""

    keys: Any
    """An array of `pyarrow`'s large binary, nulls allowed."""
    values: Any
    """An array as `keys`."""
    timestamps: Int64s
    """A numpy array of milliseconds since 1970."""

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self.timestamps)

    def rows(self, start: int, end: int) -> Columns:
        """The rows from `start` up to, not including, `end`; nothing is copied."""
        return Columns(*(column[start:end] for column in self))

    def sizes(self) -> Int64s:
        """An upper bound, in bytes, of what each row takes in a batch before compression."""
        sizes = RECORD_BYTES + byte_counts(lengths_of(self.keys))
        sizes += byte_counts(lengths_of(self.values))
        return sizes


def columns(keys: Any, values: Any, timestamps: Any) -> Columns:
    """Rows from Arrow arrays of one length; needs the extra `spark`.

    Keys and values are binary or text, nulls allowed; timestamps are int64 in ms since 1970, without nulls. Raises
    `TypeError` for other types and `ValueError` for nulls and for lengths that differ.
    """
    if not pa.types.is_int64(timestamps.type):
        raise TypeError(f"timestamps are int64, in ms, not {timestamps.type}")
    if timestamps.null_count:
        raise ValueError("a timestamp is null")
    if not len(keys) == len(values) == len(timestamps):
        raise ValueError(f"columns of {len(keys)}, {len(values)} and {len(timestamps)} rows")
    return Columns(binary_column(keys), binary_column(values), timestamps.to_numpy())


def joined(parts: Sequence[Columns]) -> Columns:
    """All their rows, copied only if there are several parts."""
    if len(parts) == 1:
        return parts[0]
    keys, values, timestamps = zip(*parts, strict=True)
    return Columns(pa.concat_arrays(keys), pa.concat_arrays(values), np.concatenate(timestamps))


def binary_column(column: Any) -> Any:
    """One array of large binary, whose 64-bit offsets fit any column length.

    Raises `TypeError`.
    """
    kind = column.type
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (is_binary or is_text or pa.types.is_null(kind)):
        raise TypeError(f"keys and values are binary or text, not {kind}")
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.cast(pa.large_binary())


def lengths_of(column: Any) -> Int64s:
    """Length of each row in bytes; -1 for a null."""
    lengths: Int64s = pc.fill_null(pc.binary_length(column), _NULL_LENGTH).to_numpy()
    return lengths


def byte_counts(lengths: Int64s) -> Int64s:
    """The number of bytes in rows of these lengths."""
    return np.maximum(lengths, 0)


def bytes_of(column: Any) -> tuple[Buffer, Int64s]:
    """The bytes of all rows, and where each begins in them; finally, where the last one ends."""
    if not len(column):
        return b"", np.zeros(1, np.int64)
    _, offsets_buffer, data = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)
    offsets = offsets[column.offset : column.offset + len(column) + 1]
    if data is None:
        return b"", offsets
    return memoryview(data)[offsets[0] : offsets[-1]], offsets - offsets[0]
