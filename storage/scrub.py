"""Reading closed segments again, slowly, to find damage since they were written.

A start checks the ends of closed segments only. `SegmentScrub` reads one from its beginning to its end,
a piece at a time, through a file of its own, in any one thread. Called by the broker's scrubber.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from echoless.storage.batch_reader import PlacedBatch, read_batches
from echoless.storage.file_system import CorruptLogError, FileSystem
from echoless.storage.offset_order import check_order


class ClosedSegment(NamedTuple):
    """A segment that is no longer appended to, as it was at the time of the call."""

    path: str
    base_offset: int
    next_offset: int
    size_bytes: int


class Damage(NamedTuple):
    """Damage that a scrub found in one file."""

    topic: str
    partition: int
    file: str
    position: int
    reason: str


class SegmentScrub:
    """One pass over one closed segment. The caller closes it at the end."""

    def __init__(self, fs: FileSystem, segment: ClosedSegment, piece_bytes: int) -> None:
        """Raises `StorageError` if the file cannot be opened."""
        self._segment = segment
        self._piece_bytes = piece_bytes
        self._file = fs.open(segment.path)
        self._batches: Iterator[PlacedBatch] = read_batches(self._file, piece_bytes)
        self._end = segment.base_offset
        """The end of the batches read so far."""

    def step(self) -> int:
        """Checks the next batches, a piece or a larger one; returns their bytes, 0 at the end.

        Raises `CorruptLogError` at the first damaged batch, `StorageError` if the file cannot be read.
        """
        read = 0
        for placed in self._batches:
            base_offset = self._segment.base_offset
            self._end = check_order(self._segment.path, placed, self._end, base_offset) + 1
            read += placed.header.size
            if read >= self._piece_bytes:
                return read
        if not read and self._end != self._segment.next_offset:
            reason = f"the records end before {self._end}, not {self._segment.next_offset}"
            raise CorruptLogError(self._segment.path, self._file.size, reason)
        return read

    def close(self) -> None:
        self._file.close()
