"""The sparse time index of one segment: from a timestamp to an offset whose batch may hold it.

An entry `(timestamp, offset)` says: no batch up to the one that ends with `offset` has a record
newer than `timestamp`, and that batch has one of exactly `timestamp`; the same entries that Kafka
writes. The last entry of a closed segment is the segment's newest record. On disk, in `.timeindex`,
big-endian pairs of i64 (ms since 1970) and i32 (offset relative to the segment's base), 12 bytes
each.

Invariant: timestamps rise strictly.

Knows nothing of files; called by `segment.py`.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from typing import Final

from echoless.protocol.record_batch import NO_TIMESTAMP

_ENTRY: Final = struct.Struct(">qi")
ENTRY_SIZE: Final = _ENTRY.size
assert ENTRY_SIZE == 12


class TimeIndex:
    """Entries of one segment; offsets are absolute at this interface."""

    __slots__ = ("_base_offset", "_relative_offsets", "_timestamps")

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._timestamps = array("q")
        self._relative_offsets = array("i")

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def last(self) -> tuple[int, int]:
        """`(timestamp, offset)` of the newest entry; `(-1, base offset)` without one."""
        if not self._timestamps:
            return NO_TIMESTAMP, self._base_offset
        return self._timestamps[-1], self._relative_offsets[-1] + self._base_offset

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds the entry if it is newer than the last one."""
        if timestamp > self.last[0]:
            self._timestamps.append(timestamp)
            self._relative_offsets.append(offset - self._base_offset)

    def offset_before(self, timestamp: int) -> int:
        """An offset up to which (exclusive) every record is older than `timestamp`."""
        place = bisect_left(self._timestamps, timestamp)
        if not place:
            return self._base_offset
        return self._relative_offsets[place - 1] + self._base_offset + 1

    def truncate_to(self, offset: int) -> None:
        """Drops the entries at or after `offset`."""
        place = bisect_left(self._relative_offsets, offset - self._base_offset)
        del self._timestamps[place:]
        del self._relative_offsets[place:]

    def encode(self) -> bytes:
        return b"".join(map(_ENTRY.pack, self._timestamps, self._relative_offsets))

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> TimeIndex | None:
        """The index as read from `.timeindex`; None when the bytes cannot be one."""
        if len(data) % ENTRY_SIZE:
            return None
        index = cls(base_offset)
        if data:
            timestamps, relative_offsets = zip(*_ENTRY.iter_unpack(data), strict=True)
            index._timestamps = array("q", timestamps)
            index._relative_offsets = array("i", relative_offsets)
        return index if index._is_plausible() else None

    def _is_plausible(self) -> bool:
        """Whether the ends of the arrays make sense; a full check would cost more than a rebuild."""
        if not self._timestamps:
            return True
        timestamps, offsets = self._timestamps, self._relative_offsets
        return timestamps[0] <= timestamps[-1] and 0 <= offsets[0] <= offsets[-1]
