"""One segment: a `.log` file of batches, with its two sparse indexes.

The newest segment of a log is active: it is appended to. The others are closed, and never change
until they are removed.

Invariant: `next_offset` is one above the last record's offset, or `base_offset` while empty.
Invariant: the offsets of batches never overlap and never fall from one batch of a file to the next.

Offsets may be missing between two batches, where compaction removed records; a leader's own appends
leave no hole. Called by `log.py`, `recovery.py` and their kin. Knows nothing of producers and other
segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from echoless.protocol.control_records import EndMarker
from echoless.protocol.record_batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
    compute_crc,
    read_header,
)
from echoless.storage import paths
from echoless.storage.batch_reader import (
    LOOK_UP_BYTES,
    REPLAY_BYTES,
    PlacedHeader,
    last_end,
    locate,
    read_batches,
    read_headers,
    read_stored_marker,
)
from echoless.storage.file_system import CorruptLogError, File, FileSystem, StorageError
from echoless.storage.log_config import LogConfig
from echoless.storage.offset_order import RELATIVE_OFFSET_MAX, check_order
from echoless.storage.segment_indexes import SegmentIndexes

_CHECKED_BYTES_MAX: Final = 1024 * 1024
"""A larger last batch is not checked at a start, which would take too long."""
_AHEAD_BYTES: Final = 64 * 1024
"""Bytes that a read may take at once without knowing where its batches are."""
SIZE_MAX: Final = 2**31 - 1
"""Index entries keep positions as i32."""


class Segment:
    """A segment that is open for reading, and for appending while it is the newest."""

    __slots__ = (
        "_created_ms",
        "_first_timestamp",
        "_fs",
        "base_offset",
        "file",
        "indexes",
        "next_offset",
    )

    def __init__(self, fs: FileSystem, file: File, base_offset: int, config: LogConfig) -> None:
        self._fs = fs
        self.file = file
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.indexes = SegmentIndexes(fs, file, base_offset, config.index_interval_bytes)
        self._created_ms: int | None = None
        """The time at which this process created the file, or first needed the age of an existing one."""
        self._first_timestamp: int | None = None
        """The first batch's max timestamp, once needed."""

    @classmethod
    def create(
        cls,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        config: LogConfig,
        now_ms: int,
        *,
        has_leftovers: bool = True,
    ) -> Segment:
        """Creates an empty segment; `has_leftovers`: index files of the same name may exist."""
        path = paths.offset_file(directory, base_offset, paths.LOG)
        segment = cls(fs, fs.open(path, create=True), base_offset, config)
        if has_leftovers:
            try:
                segment.indexes.remove_files()
            except StorageError:
                segment.close()
                raise
        segment.indexes.begin()
        segment._created_ms = now_ms
        return segment

    @classmethod
    def open(
        cls, fs: FileSystem, directory: str, base_offset: int, config: LogConfig, next_offset: int
    ) -> Segment:
        """Opens an existing segment, assumed to end before `next_offset`; nothing is read yet."""
        path = paths.offset_file(directory, base_offset, paths.LOG)
        segment = cls(fs, fs.open(path), base_offset, config)
        segment.next_offset = next_offset
        return segment

    @property
    def size(self) -> int:
        return self.file.size

    def find_end(self) -> int:
        """Finds the offset after the last record, reading from the last index entry on.

        Raises `CorruptLogError` if the file ends inside a batch, or the last batch is damaged.
        """
        last = None
        for placed in read_headers(self.file, self.indexes.last_position(), LOOK_UP_BYTES):
            last = placed
        if last is None:
            return self.base_offset
        position, header = last
        if header.size <= _CHECKED_BYTES_MAX:
            batch = self.file.read(position, header.size)
            if compute_crc(batch) != header.crc:
                raise CorruptLogError(self.file.path, position, "the CRC does not match")
        return header.next_offset

    def check_end(self) -> None:
        """Raises `CorruptLogError` unless the last record is the one before `next_offset`."""
        found = self.find_end()
        if found != self.next_offset:
            message = f"the records end before offset {found}, not {self.next_offset}"
            raise CorruptLogError(self.file.path, self.size, message)

    def append(
        self, buffers: Sequence[Buffer], batch_length: int, last_offset: int, max_timestamp: int
    ) -> None:
        """Writes one batch after the last one; the length and the timestamp are those of its header."""
        position = self.file.append(buffers)
        if not position:
            self._first_timestamp = max_timestamp
        self.indexes.note(position, batch_length + LOG_OVERHEAD, last_offset, max_timestamp)
        self.next_offset = last_offset + 1

    def append_run(self, batches: Buffer, headers: Sequence[BatchHeader]) -> None:
        """Writes batches that have their offsets already, in one write; they must fit."""
        self.indexes.load()
        position = self.file.append([batches])
        if not position:
            self._first_timestamp = headers[0].max_timestamp
        for header in headers:
            size = header.size
            self.indexes.note(position, size, header.last_offset, header.newest_record_ms)
            position += size
        self.next_offset = headers[-1].next_offset

    def must_roll(
        self,
        header: BatchHeader,
        last_offset: int,
        now_ms: int,
        config: LogConfig,
        size: int | None = None,
    ) -> bool:
        """Whether the batch belongs in a new segment (Kafka's `shouldRoll`) once this one has `size` bytes."""
        if size is None:
            size = self.file.size
        if not size:
            return False
        roll_ms, first = config.roll_ms, self._first_timestamp
        return (
            size + header.batch_length + LOG_OVERHEAD > config.segment_bytes
            or last_offset - self.base_offset > RELATIVE_OFFSET_MAX
            or (
                roll_ms is not None
                # The first half says of nearly every batch what `_age_ms` would say.
                and (first is None or header.max_timestamp - first > roll_ms or first < 0)
                and self._age_ms(header, now_ms) > roll_ms
            )
        )

    def can_hold(self, header: BatchHeader, last_offset: int) -> bool:
        """Whether the batch fits into this segment at all, whatever the configuration says."""
        size = self.file.size + header.batch_length + LOG_OVERHEAD
        return size <= SIZE_MAX and last_offset - self.base_offset <= RELATIVE_OFFSET_MAX

    def count_fitting(self, headers: Sequence[BatchHeader], now_ms: int, config: LogConfig) -> int:
        """Counts the batches that belong in this segment, which the first one does."""
        size = self.file.size + headers[0].size
        if size == headers[0].size:
            self._first_timestamp = headers[0].max_timestamp
        for count, header in enumerate(headers[1:], 1):
            if self.must_roll(header, header.last_offset, now_ms, config, size):
                return count
            size += header.size
        return len(headers)

    def _age_ms(self, header: BatchHeader, now_ms: int) -> int:
        """The time from the first batch to the new one; by the clock if records have no time."""
        first = self._first_timestamp
        if first is None:
            first = read_header(self.file.read(0, HEADER_SIZE)).max_timestamp
            self._first_timestamp = first
        if first >= 0:
            return header.max_timestamp - first
        if self._created_ms is None:
            self._created_ms = now_ms
        return now_ms - self._created_ms

    def headers_from(self, offset: int) -> Iterator[PlacedHeader]:
        """Yields headers, from the batch that holds `offset` to the end of the segment."""
        return self._headers_from(offset, LOOK_UP_BYTES)

    def end_below(self, offset: int) -> int:
        """The end of the last batch that ends at or below `offset`; `base_offset` without one."""
        end = self.base_offset
        position = self.indexes.offsets.position_before(offset - 1)
        for placed in read_headers(self.file, position, LOOK_UP_BYTES):
            if placed.header.next_offset > offset:
                break
            end = placed.header.next_offset
        return end

    def replay_from(self, offset: int) -> Iterator[tuple[BatchHeader, EndMarker | None]]:
        """Yields the same headers as `headers_from`, in large reads, with the markers of control batches.

        Raises `CorruptLogError` at a control batch whose record cannot be read.
        """
        for position, header in self._headers_from(offset, REPLAY_BYTES):
            if not header.attributes & CONTROL_BIT:
                yield header, None
                continue
            batch = self.file.read(position, header.size)
            yield header, read_stored_marker(self.file, position, header, batch)

    def _headers_from(self, offset: int, chunk_bytes: int) -> Iterator[PlacedHeader]:
        position = 0
        if offset > self.base_offset:  # else the index need not be loaded
            position = self.indexes.offsets.position_before(offset)
        for placed in read_headers(self.file, position, chunk_bytes):
            header = placed.header
            if header.base_offset + header.last_offset_delta >= offset:
                yield placed

    def scan(self) -> Iterator[tuple[BatchHeader, EndMarker | None]]:
        """Yields header and marker of all batches, checks their CRCs and rebuilds the indexes.

        Raises `CorruptLogError` at damage; the segment then ends before it.
        """
        note = self.indexes.note
        self.indexes.begin()
        expected = self.next_offset = self.base_offset
        for placed in read_batches(self.file):
            position, header, batch = placed
            last_offset = check_order(self.file.path, placed, expected, self.base_offset)
            marker = None
            if header.attributes & CONTROL_BIT:
                marker = read_stored_marker(self.file, position, header, batch)
            note(position, len(batch), last_offset, header.newest_record_ms)
            self.next_offset = expected = last_offset + 1
            yield header, marker

    def read(self, offset: int, bytes_max: int, end_offset: int) -> bytes:
        """Reads whole batches from the one that holds `offset`, all below `end_offset`.

        At most `bytes_max` bytes, but at least one batch if there is one. A small answer takes one
        read, whose beginning is where the index points.
        """
        file, size = self.file, self.file.size
        start = self.indexes.offsets.position_before(offset)
        ahead = bytes_max + LOOK_UP_BYTES
        if ahead > _AHEAD_BYTES:
            ahead = _AHEAD_BYTES if size - start <= _AHEAD_BYTES else LOOK_UP_BYTES
        chunk = file.read(start, ahead)
        found = locate(chunk, offset)
        if found is None or start + found[1] > size:
            first = next(self.headers_from(offset), None)
            if first is None:
                return b""
            begin, end, next_offset = first.position, first.end_position, first.header.next_offset
        else:
            begin, end, next_offset = start + found[0], start + found[1], found[2]
        if next_offset > end_offset:
            return b""
        limit = max(begin + bytes_max, end)
        if size <= limit and self.next_offset <= end_offset:
            end = size
        elif limit - end >= HEADER_SIZE:
            end = self._boundary(end, limit, end_offset, chunk, start)
        if end - start <= len(chunk) and begin >= start:
            return chunk[begin - start : end - start]
        return file.read(begin, end - begin)

    def _boundary(
        self, position: int, limit: int, end_offset: int, chunk: bytes, start: int
    ) -> int:
        """The last end of a batch, from `position` on, that is within `limit` and `end_offset`.

        `chunk` is what was read from `start` on: no more has to be read if it goes far enough.
        """
        if position >= start and start + len(chunk) >= min(limit, self.size):
            size = self.size
            place = last_end(chunk, position - start, limit - start, size - start, end_offset)
            if place is not None:
                return start + place
        position = max(position, self.indexes.offsets.boundary_before(limit, end_offset))
        for placed in read_headers(self.file, position, LOOK_UP_BYTES):
            if placed.end_position > limit or placed.header.next_offset > end_offset:
                break
            position = placed.end_position
        return position

    def truncate_to(self, offset: int) -> None:
        """Cuts off the batches from `offset` on, where a batch ends, durably; appends may follow."""
        first = next(self.headers_from(offset), None)
        if first is not None:
            self.cut(first.position)
            self.next_offset = offset
            self._first_timestamp = None
        self.indexes.truncate_to(self.size, self.next_offset)

    def cut(self, position: int) -> int:
        """Cuts the file off at `position`, durably; returns how many bytes were removed."""
        size = self.size - position
        self.file.truncate(position)
        self.file.sync()
        return size

    def remove(self) -> None:
        """Closes and removes the files, the log first: an index without a log is known to be stale."""
        self.file.close()
        self._fs.remove(self.file.path)
        self.indexes.remove_files()

    def close(self) -> None:
        self.file.close()
