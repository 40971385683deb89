"""Numbers as zigzag varints (`protocol/varint.py`), a column of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from echoless.client.column_bytes import Int64s

UInt64s = npt.NDArray[np.uint64]


def zigzag(numbers: Int64s) -> UInt64s:
    """The zigzag form, with the sign in bit 0, to be written seven bits a byte."""
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def widths(raw: UInt64s) -> Int64s:
    """The number of bytes that each of the zigzag numbers takes."""
    counts = np.ones(len(raw), np.int64)
    for place in range(1, _width_max(raw)):
        counts += raw >= np.uint64(1 << 7 * place)
    return counts


def varints(columns: Sequence[UInt64s]) -> Any:
    """An Arrow array of byte strings: each row holds one number of every column, in order."""
    row_count = len(columns[0])
    rooms = [_width_max(raw) for raw in columns]
    data = np.empty((row_count, sum(rooms)), np.uint8)
    is_used = np.ones(data.shape, np.bool_)
    offsets = np.zeros(row_count + 1, np.int64)
    end = 0
    for raw, room in zip(columns, rooms, strict=True):
        end += room
        _write(raw, data[:, end - room : end], is_used[:, end - room : end])
        offsets[1:] += widths(raw)
    np.cumsum(offsets, out=offsets)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data[is_used])]
    return pa.Array.from_buffers(pa.large_binary(), row_count, buffers)


def _write(raw: UInt64s, data: npt.NDArray[np.uint8], is_used: npt.NDArray[np.bool_]) -> None:
    """Writes each number into its row, lowest bits first; `is_used` marks the bytes it takes."""
    last = data.shape[1] - 1
    for place in range(last):
        rest = raw >> np.uint64(7)
        continues = rest > 0
        data[:, place] = raw.astype(np.uint8) & 0x7F | continues.view(np.uint8) << 7
        is_used[:, place + 1] = continues
        raw = rest
    data[:, last] = raw


def _width_max(raw: UInt64s) -> int:
    """The width of the greatest number; at least 1."""
    bits = int(raw.max()).bit_length()
    return max((bits + 6) // 7, 1)
