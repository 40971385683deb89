"""The sparse offset index of one segment: from an offset to a position at or before its batch.

An entry `(offset, position)` says: the batch that starts at `position` ends with `offset`; the
same entries that Kafka writes. In memory two packed arrays; on disk, in `.index`, pairs of
big-endian i32 (offset relative to the segment's base, position), 8 bytes each.

Invariant: offsets and positions both rise strictly.

Knows nothing of files; called by `segment.py`.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

ENTRY_SIZE: Final = 8
assert array("i").itemsize * 2 == ENTRY_SIZE


class OffsetIndex:
    """Entries of one segment; offsets are absolute at this interface."""

    __slots__ = ("_base_offset", "_positions", "_relative_offsets")

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._relative_offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def last(self) -> tuple[int, int] | None:
        """`(offset, position)` of the newest entry."""
        if not self._positions:
            return None
        return self._relative_offsets[-1] + self._base_offset, self._positions[-1]

    def append(self, offset: int, position: int) -> None:
        self._relative_offsets.append(offset - self._base_offset)
        self._positions.append(position)

    def position_before(self, offset: int) -> int:
        """Start of a batch at or before the one that holds `offset`; 0 without an entry."""
        relative, offsets = offset - self._base_offset, self._relative_offsets
        place = bisect_left(offsets, relative)
        if place < len(offsets) and offsets[place] == relative:
            return self._positions[place]
        return self._positions[place - 1] if place else 0

    def boundary_before(self, position: int, end_offset: int) -> int:
        """The farthest indexed start of a batch at or before `position` and below `end_offset`."""
        place = min(
            bisect_right(self._positions, position),
            bisect_left(self._relative_offsets, end_offset - self._base_offset),
        )
        return self._positions[place - 1] if place else 0

    def offset_beyond(self, offset: int, size: int) -> int | None:
        """An offset that no record of the `size` bytes from `offset`'s batch on reaches; None: the segment's end.

        The farthest such bytes begin where an indexed batch does, so it may be one interval too far.
        """
        place = bisect_left(self._relative_offsets, offset - self._base_offset)
        if place == len(self._positions):
            return None
        place = bisect_left(self._positions, self._positions[place] + size)
        if place == len(self._positions):
            return None
        return self._relative_offsets[place] + self._base_offset + 1

    def truncate_to(self, position: int) -> None:
        """Drops the entries of batches that start at or after `position`."""
        place = bisect_left(self._positions, position)
        del self._relative_offsets[place:]
        del self._positions[place:]

    def encode(self) -> bytes:
        entries = array("i", bytes(ENTRY_SIZE * len(self)))
        entries[0::2] = self._relative_offsets
        entries[1::2] = self._positions
        _to_big_endian(entries)
        return entries.tobytes()

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> OffsetIndex | None:
        """The index as read from `.index`; None when the bytes cannot be one."""
        if len(data) % ENTRY_SIZE:
            return None
        entries = array("i", data)
        _to_big_endian(entries)
        index = cls(base_offset)
        index._relative_offsets = entries[0::2]
        index._positions = entries[1::2]
        return index if index._is_plausible() else None

    def _is_plausible(self) -> bool:
        """Whether the ends of the arrays make sense; a full check would cost more than a rebuild."""
        if not self._positions:
            return True
        offsets, positions = self._relative_offsets, self._positions
        return 0 <= offsets[0] <= offsets[-1] and 0 <= positions[0] <= positions[-1]


def _to_big_endian(entries: array[int]) -> None:
    if sys.byteorder == "little":
        entries.byteswap()
