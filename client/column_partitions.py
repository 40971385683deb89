"""Partitions for the keys of an Arrow column: `partition_of` in `batch.py`, for all of them at once.

murmur2 as Kafka's own client computes it, the next four bytes of every key in one step. The
arithmetic is that of unsigned 32-bit integers, which numpy lets wrap around.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from echoless.client.batch import key_that_decides, partition_of
from echoless.client.column_bytes import Int64s, binary_column, bytes_of, lengths_of
from echoless.protocol.record_batch import Buffer

UInt32s = npt.NDArray[np.uint32]

_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)
_WORD: Final = 4
_TAIL_MASKS: Final = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
_LONG_KEY: Final = 1024
"""In bytes. Longer keys are rare, and would make all others take part in their many steps."""


def partitions_of(keys: Any, partition_count: int) -> npt.NDArray[np.int64]:
    """The partition of each key of an Arrow array (binary or text), as `partition_of`; needs the extra `spark`.

    Raises `ValueError` if a key is null.
    """
    if keys.null_count:
        key_that_decides(None)
    column = binary_column(keys)
    lengths = lengths_of(column)
    is_long = lengths > _LONG_KEY
    data, offsets = bytes_of(column)
    hashes = _murmur2(data, offsets[:-1], np.where(is_long, 0, lengths))
    partitions = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % partition_count
    for row in np.flatnonzero(is_long).tolist():
        partitions[row] = partition_of(column[row].as_py(), partition_count)
    return partitions


def _murmur2(data: Buffer, starts: Int64s, lengths: Int64s) -> UInt32s:
    words = _words(data)
    hashes = _SEED ^ lengths.astype(np.uint32)
    ends = starts + (lengths & ~3)
    positions, rows = starts, np.arange(len(starts))
    while True:
        has_more = positions < ends[rows]
        positions, rows = positions[has_more], rows[has_more]
        if not len(rows):
            break
        mixed = words[positions] * _M
        mixed = (mixed ^ mixed >> np.uint32(24)) * _M
        hashes[rows] = hashes[rows] * _M ^ mixed
        positions = positions + _WORD
    tails = lengths & 3
    with_tail = (hashes ^ words[ends] & _TAIL_MASKS[tails]) * _M
    hashes = np.where(tails, with_tail, hashes)
    hashes = (hashes ^ hashes >> np.uint32(13)) * _M
    return hashes ^ hashes >> np.uint32(15)


def _words(data: Buffer) -> UInt32s:
    """The four bytes at each position, as a little-endian number; zeros follow the last byte."""
    padded = b"".join((data, bytes(_WORD)))
    count = len(padded) - _WORD + 1
    return np.ndarray((count,), np.dtype("<u4"), padded, strides=(1,))
