"""Rows as Arrow columns.

Needs numpy and pyarrow (the extra `spark`), as do the files named `column_*.py`; the rest of the
package does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from echoless.client.batch import RECORD_BYTES
from echoless.client.column_bytes import Int64s, binary_column, byte_counts, lengths_of
from echoless.client.column_headers import HeaderColumn, header_column, no_headers


class Columns(NamedTuple):
    """Consecutive rows of one partition, made by `columns`."""

    keys: Any
    """An array of `pyarrow`'s large binary, nulls allowed."""
    values: Any
    """An array as `keys`."""
    timestamps: Int64s
    """A numpy array of milliseconds since 1970."""
    headers: HeaderColumn | None = None
    """None: no row has any."""

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self.timestamps)

    def rows(self, start: int, end: int) -> Columns:
        """The rows from `start` up to, not including, `end`; nothing is copied."""
        return Columns(
            self.keys[start:end],
            self.values[start:end],
            self.timestamps[start:end],
            None if self.headers is None else self.headers.rows(start, end),
        )

    def sizes(self) -> Int64s:
        """An upper bound, in bytes, of what each row takes in a batch before compression."""
        sizes = RECORD_BYTES + byte_counts(lengths_of(self.keys))
        sizes += byte_counts(lengths_of(self.values))
        return sizes if self.headers is None else sizes + self.headers.sizes


def columns(keys: Any, values: Any, timestamps: Any, headers: Any = None) -> Columns:
    """Rows from Arrow arrays of one length; needs the extra `spark`.

    Keys and values are binary or text, nulls allowed; timestamps are int64 in ms since 1970, without nulls; headers are
    lists of structs of `key`, text, and `value`, binary or text, nulls allowed but for a key. Raises
    `TypeError` for other types and `ValueError` for nulls and for lengths that differ.
    """
    if not pa.types.is_int64(timestamps.type):
        raise TypeError(f"timestamps are int64, in ms, not {timestamps.type}")
    if timestamps.null_count:
        raise ValueError("a timestamp is null")
    if not len(keys) == len(values) == len(timestamps):
        raise ValueError(f"columns of {len(keys)}, {len(values)} and {len(timestamps)} rows")
    if headers is not None and len(headers) != len(keys):
        raise ValueError(f"columns of {len(keys)} rows, and headers of {len(headers)}")
    encoded = None if headers is None else header_column(headers)
    return Columns(binary_column(keys), binary_column(values), timestamps.to_numpy(), encoded)


def joined(parts: Sequence[Columns]) -> Columns:
    """All their rows, copied only if there are several parts."""
    if len(parts) == 1:
        return parts[0]
    keys, values, timestamps, headers = zip(*parts, strict=True)
    together = None
    if any(one is not None for one in headers):
        given = [one or no_headers(len(keys[i])) for i, one in enumerate(headers)]
        together = HeaderColumn(
            pa.concat_arrays([one.encoded for one in given]),
            np.concatenate([one.sizes for one in given]),
        )
    return Columns(
        pa.concat_arrays(keys), pa.concat_arrays(values), np.concatenate(timestamps), together
    )
