"""Walk over the batches in some bytes, and the search for the next batch after damage.

Only a batch's own header says where it ends, so that is a loop over the batches, which reads a length and the magic;
all other fields are left to numpy. The loop and the checksums take 0.6 us for each batch: a search for all bytes that
could be a magic, by numpy, takes as long where batches have 600 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from echoless.pipeline.batches.batch_columns import Flags, Headers, Integers, decode_headers
from echoless.protocol.checksum import crc32c
from echoless.protocol.record_batch import (
    ATTRIBUTES_POSITION,
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    Buffer,
    compute_crc,
)

_FRAME: Final = struct.Struct(">iib")
"""The header's fields from `batch_length` to `magic`."""
_FRAME_POSITION: Final = 8
_OFFSETS_AHEAD_MAX: Final = 2**40
"""Offsets that damage may hide at most: a batch further ahead is not believed."""


@dataclass(slots=True)
class Walk:
    """Result of a walk. Positions count from the start of the bytes."""

    positions: Integers
    headers: Headers
    crc_oks: Flags
    end: int
    """End of the last batch found."""
    damage: str | None
    """Reason why the bytes at `end` are not a batch; None if they are only incomplete."""


def walk(buffer: Buffer, *, is_last: bool) -> Walk:
    """Finds the complete batches from the start of `buffer` up to the first bytes that are not one.

    A batch with a wrong CRC counts if another one follows, or the end (`is_last`: nothing follows these bytes), since
    its length is right then. Otherwise even its end is unknown.
    """
    starts, end, damage = _find_frames(buffer)
    positions = np.array(starts, np.int64)
    headers = decode_headers(buffer, positions)
    view = memoryview(buffer)
    bodies = pairwise([*starts, end])
    crcs = [crc32c(view[start + ATTRIBUTES_POSITION : stop]) for start, stop in bodies]
    crc_oks = np.array(crcs, np.uint32) == headers["crc"]
    found = Walk(positions, headers, crc_oks, end, damage)
    # All but the last are followed by a batch.
    total = len(buffer)
    if starts and not crc_oks[-1] and not begins_batch(view[end:]) and (end < total or not is_last):
        is_known = is_last or total - end >= HEADER_SIZE
        reason = "the CRC does not match, and no batch follows" if is_known else None
        found = Walk(positions[:-1], headers[:-1], crc_oks[:-1], starts[-1], reason)
    return found


def _find_frames(buffer: Buffer) -> tuple[list[int], int, str | None]:
    """Returns where the complete batches start and where the last one ends, by their lengths alone.

    The third is the reason why the next bytes are not a batch, None if they are only incomplete.
    """
    unpack, starts = _FRAME.unpack_from, list[int]()
    position, total = 0, len(buffer)
    last_start = total - HEADER_SIZE
    while position <= last_start:
        length, _, magic = unpack(buffer, position + _FRAME_POSITION)
        if magic != MAGIC or length < BATCH_LENGTH_MIN:
            return starts, position, _impossible(magic, length)
        end = position + LOG_OVERHEAD + length
        if end > total:
            break
        starts.append(position)
        position = end
    return starts, position, None


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
    length, _, magic = _FRAME.unpack_from(buffer, _FRAME_POSITION)
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
