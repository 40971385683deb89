"""Scan of a segment file as rows of `batch_columns`, damage included.

The file is read once, front to back, in large blocks. Bytes that are not a batch become one row with `damage` set, and
reading continues at the next batch with a correct CRC.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple, Self

import pyarrow as pa

from echoless.pipeline.batches.batch_columns import header_columns, to_arrow
from echoless.pipeline.batches.batch_walk import Walk, begins_batch, claimed_size, find_batch, walk
from echoless.pipeline.batches.markers import marker_types
from echoless.protocol.record_batch import HEADER_SIZE

_BLOCK_BYTES: Final = 1024 * 1024
"""Bytes read at once: the checksums find in the processor what the walk has just read."""
_SEARCH_BYTES: Final = 1024 * 1024
_INCOMPLETE: Final = "the file ends inside the batch"


class SegmentRange(NamedTuple):
    """Range of bytes in a segment file, from the start of a batch to the start of another or the end."""

    replica: str
    topic: str
    partition: int
    path: str
    file: str
    """Path to show, relative to the data directory."""
    position: int
    end: int | None
    """Position after the last byte; None: the end of the file when it is read."""
    bytes_planned: int
    """Size of the range when it was planned; the file may have grown since."""
    segment_offset: int
    """Base offset of the segment: no batch in it begins lower."""


class SegmentScan:
    """Scan of one range. Use it in a `with` block."""

    def __init__(self, segment_range: SegmentRange) -> None:
        """Opens the file. Raises `OSError`."""
        self._range = segment_range
        self._descriptor = os.open(segment_range.path, os.O_RDONLY | os.O_CLOEXEC)
        size = os.fstat(self._descriptor).st_size
        self._end = size if segment_range.end is None else min(segment_range.end, size)
        self._offset_min = segment_range.segment_offset
        """Lower bound for the offsets of further batches."""

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yields all batches of the range, in the order of the file."""
        position = self._range.position
        while position < self._end:
            block = self._read_block(position)
            found = walk(block, is_last=position + len(block) >= self._end)
            if found.end:
                yield self._batches(position, block, found)
                position += found.end
            if found.damage is not None or not found.end:
                size = self._find_next(position) - position
                yield self._damage(position, size, found.damage or _INCOMPLETE)
                position += size

    def _read_block(self, position: int) -> bytes:
        """Reads a block, or a single batch larger than that if another one follows its end."""
        block = self._read(position, _BLOCK_BYTES)
        size = claimed_size(block)
        if size <= len(block):
            return block
        end = position + size
        if end == self._end or begins_batch(self._read(end, HEADER_SIZE)):
            return self._read(position, size)
        return block

    def _read(self, position: int, size: int) -> bytes:
        return os.pread(self._descriptor, max(0, min(size, self._end - position)), position)

    def _batches(self, start: int, block: bytes, found: Walk) -> pa.RecordBatch:
        columns = header_columns(found.headers)
        self._offset_min = max(self._offset_min, int(columns["last_offset"].max()) + 1)
        return to_arrow(
            len(found.positions),
            {
                **self._range._asdict(),
                **columns,
                "position": found.positions + start,
                "crc_ok": found.crc_oks,
                "marker": marker_types(block, found.positions, found.headers),
            },
        )

    def _damage(self, position: int, size: int, damage: str) -> pa.RecordBatch:
        own = {"position": position, "bytes": size, "crc_ok": False, "damage": damage}
        return to_arrow(1, {**self._range._asdict(), **own})

    def _find_next(self, damaged: int) -> int:
        """Returns the start of the next batch after the one at `damaged`; the end if there is none."""
        position = damaged + 1
        while position < self._end:
            block = self._read(position, _SEARCH_BYTES + HEADER_SIZE)
            found = find_batch(block, self._offset_min, partial(self._read_behind, position))
            if found is not None:
                return position + found
            position += _SEARCH_BYTES
        return self._end

    def _read_behind(self, start: int, position: int, size: int) -> bytes:
        return self._read(start + position, size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
