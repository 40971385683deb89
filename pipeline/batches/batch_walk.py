"""Walk over the batches in some bytes, and the search for the next batch after damage.

Only a batch's own header says where it ends, so this is a loop over the batches; it reads nothing but the length and
the checksum, and leaves the other fields to numpy.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from echoless.pipeline.batches.batch_columns import decode_headers
from echoless.protocol.checksum import crc32c
from echoless.protocol.record_batch import (
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    Buffer,
    compute_crc,
)

_FRAME: Final = struct.Struct(">iiBI")
"""The header's fields from `batch_length` to `crc`."""
_FRAME_POSITION: Final = 8
_CHECKED_POSITION: Final = _FRAME_POSITION + _FRAME.size
"""Position of the first byte that the CRC covers."""
_OFFSETS_AHEAD_MAX: Final = 2**40
"""Offsets that damage may hide at most: a batch further ahead is not believed."""


@dataclass(slots=True)
class Walk:
    """Result of a walk. Positions count from the start of the bytes."""

    positions: list[int] = field(default_factory=list)
    crc_oks: list[bool] = field(default_factory=list)
    end: int = 0
    """End of the last batch found."""
    damage: str | None = None
    """Reason why the bytes at `end` are not a batch; None if they are only incomplete."""


def walk(buffer: Buffer, *, is_last: bool) -> Walk:
    """Finds the complete batches from the start of `buffer` up to the first bytes that are not one.

    A batch with a wrong CRC counts if another one follows, or the end (`is_last`: nothing follows these bytes), since
    its length is right then. Otherwise even its end is unknown.
    """
    found = Walk()
    view = memoryview(buffer)
    total = len(view)
    position = 0
    while total - position >= HEADER_SIZE:
        length, _, magic, crc = _FRAME.unpack_from(view, position + _FRAME_POSITION)
        end = position + LOG_OVERHEAD + length
        if magic != MAGIC or length < BATCH_LENGTH_MIN:
            found.damage = _impossible(magic, length)
            break
        if end > total:
            break
        crc_ok = crc32c(view[position + _CHECKED_POSITION : end]) == crc
        if not crc_ok and not begins_batch(view[end:]) and not (is_last and end == total):
            if is_last or total - end >= HEADER_SIZE:
                found.damage = "the CRC does not match, and no batch follows"
            break
        found.positions.append(position)
        found.crc_oks.append(crc_ok)
        position = found.end = end
    return found


def _impossible(magic: int, length: int) -> str | None:
    if magic != MAGIC:
        return f"magic {magic}, not {MAGIC}"
    if length < BATCH_LENGTH_MIN:
        return f"batch length {length}, at least {BATCH_LENGTH_MIN} are needed"
    return None


def begins_batch(buffer: Buffer) -> bool:
    """Whether `buffer` starts with a plausible header."""
    if len(buffer) < HEADER_SIZE:
        return False
    length, _, magic, _ = _FRAME.unpack_from(buffer, _FRAME_POSITION)
    return _impossible(magic, length) is None


def claimed_size(buffer: Buffer) -> int:
    """Returns the size of the batch at the start of `buffer` by its header; 0 without a header."""
    if not begins_batch(buffer):
        return 0
    length, *_ = _FRAME.unpack_from(buffer, _FRAME_POSITION)
    return int(length) + LOG_OVERHEAD


def find_batch(
    buffer: Buffer, offset_min: int, read_batch: Callable[[int, int], Buffer]
) -> int | None:
    """Returns the position in `buffer` of the first batch with a correct CRC; None if there is none.

    Its offset must not be below `offset_min`. `read_batch(position, size)` returns the bytes of a batch, which may
    extend past `buffer`; fewer if the file ends.
    """
    data = np.frombuffer(buffer, np.uint8)
    last_start = len(data) - HEADER_SIZE
    if last_start < 0:
        return None
    magics = data[MAGIC_POSITION : MAGIC_POSITION + last_start + 1]
    candidates = np.flatnonzero(magics == MAGIC)
    headers = decode_headers(buffer, candidates)
    ahead = headers["base_offset"].astype(np.int64) - offset_min
    is_possible = (ahead >= 0) & (ahead < _OFFSETS_AHEAD_MAX)
    is_possible &= headers["batch_length"] >= BATCH_LENGTH_MIN
    is_possible &= headers["last_offset_delta"] >= 0
    for index in np.flatnonzero(is_possible):
        position = int(candidates[index])
        size = int(headers["batch_length"][index]) + LOG_OVERHEAD
        batch = read_batch(position, size)
        if len(batch) == size and compute_crc(batch) == int(headers["crc"][index]):
            return position
    return None
