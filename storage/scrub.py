"""Reading closed segments again, slowly, to find what has been damaged since they were written.

A start looks at the ends of closed segments only. `SegmentScrub` reads one from its beginning to its
end, a piece at a time, through a file of its own, in any one thread. Called by the broker's scrubber.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from storage.batch_reader import PlacedBatch, read_batches
from storage.file_system import CorruptLogError, FileSystem


class ClosedSegment(NamedTuple):
    """A segment that is not written any more, as it was when asked for."""

    path: str
    base_offset: int
    next_offset: int
    size_bytes: int


class Damage(NamedTuple):
    """What a scrub found in one file."""

    topic: str
    partition: int
    file: str
    position: int
    reason: str


class SegmentScrub:
    """One pass over one closed segment. `close` it in the end."""

    def __init__(self, fs: FileSystem, segment: ClosedSegment, piece_bytes: int) -> None:
        """Raises `StorageError` if the file cannot be opened."""
        self._segment = segment
        self._piece_bytes = piece_bytes
        self._file = fs.open(segment.path)
        self._batches: Iterator[PlacedBatch] = read_batches(self._file, piece_bytes)
        self._expected = segment.base_offset

    def step(self) -> int:
        """Checks the next batches, a piece or one that is larger; returns their bytes, 0 at the end.

        Raises `CorruptLogError` at the first batch that is not what was written, `StorageError` if the
        file cannot be read.
        """
        read = 0
        for position, header, _ in self._batches:
            if header.base_offset != self._expected:
                raise self._damage(position, f"offset {header.base_offset}, not {self._expected}")
            self._expected = header.next_offset
            read += header.size
            if read >= self._piece_bytes:
                return read
        if not read and self._expected != self._segment.next_offset:
            reason = f"the records end before {self._expected}, not {self._segment.next_offset}"
            raise self._damage(self._file.size, reason)
        return read

    def _damage(self, position: int, reason: str) -> CorruptLogError:
        return CorruptLogError(self._segment.path, position, reason)

    def close(self) -> None:
        self._file.close()
