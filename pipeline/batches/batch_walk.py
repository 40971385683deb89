"""Finds batches in bytes: one after the other, and again after damage.

Where a batch ends only its own header says, so this is a loop over the batches; it looks at
nothing but the length and the checksum, and leaves the other fields to numpy.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pipeline.batches.batch_columns import decode_headers
from protocol.checksum import crc32c
from protocol.record_batch import (
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
"""The CRC covers everything from here on."""
_OFFSETS_AHEAD_MAX: Final = 2**40
"""How far after damage the next batch's offset may lie and still be believed."""


@dataclass(slots=True)
class Walk:
    """What was found in some bytes. Positions count from their start."""

    positions: list[int] = field(default_factory=list)
    crc_oks: list[bool] = field(default_factory=list)
    end: int = 0
    """The end of the last batch found."""
    damage: str | None = None
    """Why what begins at `end` is no batch; None where it only lacks bytes."""


def walk(buffer: Buffer, *, is_last: bool) -> Walk:
    """Finds the complete batches from the start of `buffer` on, up to the first that is none.

    A batch whose CRC is wrong counts where another one follows it, or the end (`is_last`: nothing
    comes behind these bytes): its length is right then. Otherwise not even its end is known.
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
    """Bytes of the batch at the start of `buffer`, as its header says; 0 without a header."""
    if not begins_batch(buffer):
        return 0
    length, *_ = _FRAME.unpack_from(buffer, _FRAME_POSITION)
    return int(length) + LOG_OVERHEAD


def find_batch(
    buffer: Buffer, offset_min: int, read_batch: Callable[[int, int], Buffer]
) -> int | None:
    """Where in `buffer` the first batch begins whose CRC is right; None where none does.

    Its offset must not lie below `offset_min`. `read_batch(position, size)` gives the bytes of a
    batch, which may reach beyond `buffer`; fewer where the file ends.
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
