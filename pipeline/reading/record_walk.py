"""Positions of the records in many batches at once, and numbers read there: varints by numpy, a column at a time.

Only its length says where a record ends, so the search for the records of one batch takes one step after the other.
Batches do not depend on each other: with many small ones, one step of numpy finds the next record of each; with few large ones
a loop over the records is faster (0.15 us a record). Everything else is read for all records at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from echoless.protocol.errors import DecodeError

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_MORE: Final = 0x80
_BITS: Final = 0x7F
_VARINT_BITS_MAX: Final = 64
_LENGTH_BYTES_MAX: Final = 5
_STEP_RECORDS: Final = 40
"""Records that the loop finds in the time of one step for all batches (6 us)."""


class RecordArea(NamedTuple):
    """The uncompressed records of one batch, among the bytes of others."""

    start: int
    end: int
    record_count: int


def find_records(data: bytes, areas: Sequence[RecordArea]) -> Int64s:
    """Returns the position of each record's length, in the order of the areas. Raises `DecodeError`."""
    counts = np.array([area.record_count for area in areas], np.int64)
    if len(areas) < _STEP_RECORDS or int(counts.max()) * _STEP_RECORDS > int(counts.sum()):
        return _one_by_one(data, areas)
    return _side_by_side(np.frombuffer(data, np.uint8), areas, counts)


def _one_by_one(data: bytes, areas: Sequence[RecordArea]) -> Int64s:
    found: list[int] = []
    note = found.append
    try:
        for area in areas:
            position = area.start
            for _ in range(area.record_count):
                note(position)
                size = data[position]
                position += 1
                if size >= _MORE:
                    byte = data[position]
                    position += 1
                    size += (byte - 1) << 7
                    if byte >= _MORE:
                        size, position = _long_length(data, position - 2)
                position += size >> 1
    except IndexError as error:
        raise DecodeError("a record ends after its batch") from error
    return np.array(found, np.int64)


def _long_length(data: bytes, position: int) -> tuple[int, int]:
    """Returns the raw length at `position`, and the position after it."""
    size = 0
    for place in range(_LENGTH_BYTES_MAX):
        byte = data[position + place]
        size |= (byte & _BITS) << 7 * place
        if byte < _MORE:
            return size, position + place + 1
    raise DecodeError(f"the length of a record takes more than {_LENGTH_BYTES_MAX} bytes")


def _side_by_side(data: Bytes, areas: Sequence[RecordArea], counts: Int64s) -> Int64s:
    """Finds the first record of each area, then the second one of each that has one, and so on."""
    firsts = np.cumsum(counts) - counts
    found = np.zeros(int(counts.sum()), np.int64)
    # Areas by falling number of records: those that have no more are at the end.
    order = np.argsort(-counts, kind="stable")
    at = np.array([area.start for area in areas], np.int64)[order]
    target = firsts[order]
    left = counts[order]
    active = len(order)
    for step in range(int(left[0]) if active else 0):
        active = int(np.searchsorted(-left, -step, "left"))
        at, target = at[:active], target[:active]
        found[target] = at
        size, after = read_varints(data, at)
        at = after + np.maximum(size, 0)
        target = target + 1
    return found


def read_varints(data: Bytes, at: Int64s) -> tuple[Int64s, Int64s]:
    """Reads the zigzag varint at each position; returns the numbers, and the positions after them.

    Raises `DecodeError`.
    """
    try:
        first = data[at]
        raw = first.astype(np.uint64)
        after = at + 1
        more = np.flatnonzero(first >= _MORE)
        if len(more):
            raw[more] &= np.uint64(_BITS)
            _read_further(data, raw, after, more)
    except IndexError as error:
        raise DecodeError("a number of a record lies after its batch") from error
    sign = -(raw & np.uint64(1)).view(np.int64)
    return (raw >> np.uint64(1)).view(np.int64) ^ sign, after


def _read_further(data: Bytes, raw: npt.NDArray[np.uint64], after: Int64s, more: Int64s) -> None:
    """Adds the bytes after the first one of the numbers `more`."""
    shift = 7
    while len(more):
        if shift >= _VARINT_BITS_MAX:
            raise DecodeError(f"a number of a record takes more than {_VARINT_BITS_MAX} bits")
        byte = data[after[more]]
        raw[more] |= (byte & _BITS).astype(np.uint64) << np.uint64(shift)
        after[more] += 1
        more = more[byte >= _MORE]
        shift += 7
