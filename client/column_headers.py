"""The headers of rows as a column of bytes, encoded as a record has them.

    number of headers | key length | key | value length | value | key length | ...

No Python object is made for a header: numpy writes the numbers as varints, Arrow puts keys and values between them, and
the headers of a row are neighbours in what comes out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from echoless.client.batch import HEADER_BYTES, HEADER_KEY_BYTES
from echoless.client.column_bytes import (
    Int64s,
    binary_column,
    byte_counts,
    bytes_of,
    join,
    lengths_of,
)
from echoless.client.column_varints import varints, zigzag


class HeaderColumn(NamedTuple):
    """The headers of consecutive rows, made by `header_column`."""

    encoded: Any
    """An array of `pyarrow`'s large binary: what each row's record has after its value."""
    sizes: Int64s
    """An upper bound, in bytes, of what they add to each row."""

    def rows(self, start: int, end: int) -> HeaderColumn:
        """The headers of the rows from `start` up to, not including, `end`; nothing is copied."""
        return HeaderColumn(self.encoded[start:end], self.sizes[start:end])


def no_headers(count: int) -> HeaderColumn:
    """The headers of `count` rows without any."""
    zeros = np.zeros(count, np.uint8)
    buffers = [None, pa.py_buffer(np.arange(count + 1)), pa.py_buffer(zeros)]
    encoded = pa.Array.from_buffers(pa.large_binary(), count, buffers)
    return HeaderColumn(encoded, np.zeros(count, np.int64))


def header_column(headers: Any) -> HeaderColumn | None:
    """The headers of rows, given as `columns` describes them; None if no row has any.

    Raises `TypeError` and `ValueError`.
    """
    _check_type(headers.type)
    if isinstance(headers, pa.ChunkedArray):
        headers = headers.combine_chunks()
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy().astype(np.int64)
    each = headers.flatten()
    if not len(each):
        return None
    names = pc.struct_field(each, "key")
    if names.null_count:
        raise ValueError("a header has the key null")
    keys, values = binary_column(names), binary_column(pc.struct_field(each, "value"))
    key_lengths, value_lengths = lengths_of(keys), lengths_of(values)
    parts = (varints((zigzag(key_lengths),)), keys, varints((zigzag(value_lengths),)), values)
    data, positions = bytes_of(join(*parts))
    ends = np.concatenate([[0], np.cumsum(counts)])
    buffers = [None, pa.py_buffer(positions[ends]), pa.py_buffer(data)]
    of_rows = pa.Array.from_buffers(pa.large_binary(), len(counts), buffers)
    sizes = HEADER_BYTES + byte_counts(value_lengths)
    sizes += HEADER_KEY_BYTES * pc.utf8_length(names.cast(pa.large_string())).to_numpy()
    through = np.concatenate([[0], np.cumsum(sizes)])
    return HeaderColumn(join(varints((zigzag(counts),)), of_rows), np.diff(through[ends]))


def _check_type(kind: Any) -> None:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if is_list and pa.types.is_struct(kind.value_type):
        names = {kind.value_type.field(i).name for i in range(kind.value_type.num_fields)}
        if names >= {"key", "value"}:
            return
    raise TypeError(f"headers are lists of structs of key and value, not {kind}")
