"""The sparse indexes of one segment, in memory and in their files, and its file of aborted transactions.

While a segment is appended to, they grow in memory, and no file is touched. Once it is closed, `save`
writes and syncs the files; any thread may do that, since a closed segment has no other writer. The
indexes of a segment found on disk are read when first needed. Files that are missing, torn or do not
point at batches are rebuilt from the headers of the log: a sparse index is a convenience, never evidence.

The file of aborted transactions is evidence (`transaction_index_file.py`): it is written before the producer snapshot at the end
of the segment, so that a closed segment with that snapshot has it, too, and opening the log need not read its batches.

Invariant: a closed segment below the recovery point that lacks entries in its file of aborted transactions is the last one
closed, and has no producer snapshot at its end.

Called by `segment.py`. Knows nothing of appending and of other segments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from echoless.protocol.record_batch import HEADER_SIZE
from echoless.storage import offset_index, paths, time_index
from echoless.storage.batch_reader import REPLAY_BYTES, read_headers
from echoless.storage.file_system import CorruptLogError, File, FileSystem, StorageError
from echoless.storage.offset_index import OffsetIndex
from echoless.storage.offset_order import check_order
from echoless.storage.producers.open_transactions import ClosedTransaction
from echoless.storage.time_index import TimeIndex
from echoless.storage.transaction_index import TransactionIndex
from echoless.storage.transaction_index_file import cut_transaction_index, read_transaction_index

_ENTRY_SIZES: Final = {
    paths.OFFSET_INDEX: offset_index.ENTRY_SIZE,
    paths.TIME_INDEX: time_index.ENTRY_SIZE,
}


class SealedIndexes(NamedTuple):
    """The sparse indexes of a closed segment, without its file; can be pickled."""

    offsets: OffsetIndex
    times: TimeIndex
    top: tuple[int, int]
    """See `SegmentIndexes.top`."""


class SegmentIndexes:
    """Offset and time index of the segment in `file`."""

    __slots__ = (
        "_aborted",
        "_bytes_since_entry",
        "_file",
        "_fs",
        "_interval_bytes",
        "_is_top_known",
        "_offsets",
        "_times",
        "_top_offset",
        "_top_timestamp",
        "base_offset",
        "has_unsaved_aborts",
        "is_unsaved",
    )

    def __init__(self, fs: FileSystem, file: File, base_offset: int, interval_bytes: int) -> None:
        self._fs = fs
        self._file = file
        self._interval_bytes = interval_bytes
        self.base_offset = base_offset
        self.is_unsaved = False
        """Whether the files differ from what is in memory."""
        self.has_unsaved_aborts = False
        """The same of the file of aborted transactions."""
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._aborted: TransactionIndex | None = None
        self._bytes_since_entry = 0
        self._top_timestamp, self._top_offset = -1, base_offset
        self._is_top_known = False
        """Remains true when the indexes are released."""

    @property
    def need_files(self) -> bool:
        """Whether opening the segment would read more without files, or find stale ones, or miss aborted transactions.

        Without an entry in the offset index all batches are walked anyway.
        """
        return (
            bool(self.offsets)
            or self.has_unsaved_aborts
            or any(self._fs.exists(self._path(s)) for s in paths.SPARSE_INDEXES)
        )

    @property
    def have_files(self) -> bool:
        """Whether both sparse files are there."""
        return all(self._fs.exists(self._path(suffix)) for suffix in paths.SPARSE_INDEXES)

    @property
    def aborted(self) -> TransactionIndex:
        """The transactions that markers of this segment aborted; read from the file when first needed."""
        if self._aborted is None:
            self._aborted = read_transaction_index(self._fs, self._directory, self.base_offset)
        return self._aborted

    @property
    def holds_aborted(self) -> bool:
        """Whether aborted transactions are in memory."""
        return bool(self._aborted)

    def note_aborted(self, aborted: ClosedTransaction) -> None:
        """Adds a transaction whose marker is in this segment, after all others."""
        self.aborted.append(aborted)
        self.has_unsaved_aborts = True

    def begin_aborted(self) -> TransactionIndex:
        """Starts empty, as for a log that is read from its batches; returns what was known before."""
        known, self._aborted = self.aborted, TransactionIndex(self.base_offset)
        self.has_unsaved_aborts = bool(known)
        return known

    def load(self) -> None:
        """Loads both into memory if necessary."""
        if self._offsets is None:
            self._load()

    @property
    def offsets(self) -> OffsetIndex:
        if self._offsets is None:
            self._load()
        assert self._offsets is not None
        return self._offsets

    @property
    def times(self) -> TimeIndex:
        if self._times is None:
            self._load()
        assert self._times is not None
        return self._times

    @property
    def top(self) -> tuple[int, int]:
        """`(timestamp, last offset of its batch)` of the newest record; `(-1, ...)` without one."""
        if not self._is_top_known and not self._peek_top():
            self._load()
        return self._top_timestamp, self._top_offset

    def last_position(self) -> int:
        """Start of the last indexed batch, 0 without one; reads only the last entry of the file."""
        if self._offsets is None:
            position = self._peek_last_position()
            if position is not None:
                return position
        last = self.offsets.last
        return last[1] if last is not None else 0

    def _peek_last_position(self) -> int | None:
        last = OffsetIndex.decode(self.base_offset, self._read_last(paths.OFFSET_INDEX))
        if last is None or last.last is None or not self._is_sound(last):
            return None
        return last.last[1]

    def _peek_top(self) -> bool:
        """Reads the newest record of a closed segment from the end of its time index."""
        last = TimeIndex.decode(self.base_offset, self._read_last(paths.TIME_INDEX))
        if last is None or not len(last):
            return False
        self._top_timestamp, self._top_offset = last.last
        self._is_top_known = True
        return True

    def _read_last(self, suffix: str) -> bytes:
        """The last entry of a file, empty if there is none."""
        path = self._path(suffix)
        if not self._fs.exists(path):
            return b""
        size = _ENTRY_SIZES[suffix]
        try:
            file = self._fs.open(path)
        except StorageError:
            if self._fs.exists(path):
                raise
            return b""  # a swap of compaction has just removed it, in another thread
        try:
            return file.read(max(file.size - size, 0), size)
        finally:
            file.close()

    def begin(self) -> None:
        """Starts empty; `note` is then called for every batch from the start of the file."""
        self._offsets = OffsetIndex(self.base_offset)
        self._times = TimeIndex(self.base_offset)
        self._bytes_since_entry = 0
        self._top_timestamp, self._top_offset = self._times.last
        self._is_top_known = True
        self.is_unsaved = True

    def adopt(self, sealed: SealedIndexes) -> None:
        """Takes over the indexes of the same bytes under another name; no file has them yet."""
        self.begin()
        self._offsets, self._times, (self._top_timestamp, self._top_offset) = sealed

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Adds the batch at `position`, after all others."""
        if self._offsets is None:
            self._load()  # reads to the end of the file, this batch included
            return
        if max_timestamp > self._top_timestamp:
            self._top_timestamp, self._top_offset = max_timestamp, last_offset
        if self._bytes_since_entry > self._interval_bytes:
            self._offsets.append(last_offset, position)
            self.times.maybe_append(self._top_timestamp, self._top_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size

    def seal(self) -> SealedIndexes:
        """Adds the newest record to the time index: the segment is closed."""
        self.is_unsaved = True
        self.times.maybe_append(self._top_timestamp, self._top_offset)
        return SealedIndexes(self.offsets, self.times, (self._top_timestamp, self._top_offset))

    def truncate_to(self, position: int, offset: int) -> None:
        """Drops the batches from `position` and `offset` on.

        The sparse ones' files are removed first: they describe batches that others will replace.
        """
        offsets, times = self.offsets, self.times
        self._remove(paths.SPARSE_INDEXES)
        self.aborted.truncate_to(offset)
        cut_transaction_index(self._fs, self._directory, self.base_offset, offset)
        self.is_unsaved = True
        offsets.truncate_to(position)
        times.truncate_to(offset)
        self._note_after_last_entry()

    def save(self) -> None:
        """Writes all files and syncs them. The segment is sealed, and not appended to."""
        self.save_aborted()
        for suffix, data in zip(
            paths.SPARSE_INDEXES, (self.offsets.encode(), self.times.encode()), strict=True
        ):
            file = self._fs.open(self._path(suffix), create=True)
            try:
                file.truncate(0)
                file.append([data])
                file.sync()
            finally:
                file.close()

    def save_aborted(self) -> None:
        """Writes the file of aborted transactions, durably, if it differs from memory."""
        if self.has_unsaved_aborts:
            self._fs.write_atomic(self._path(paths.TRANSACTION_INDEX), self.aborted.encode())
            self.has_unsaved_aborts = False

    def drop_aborted(self, markers: Collection[int]) -> None:
        """Drops the aborted transactions that end with these markers; `save_aborted` is next.

        Any thread may do that, while no other changes the segment; readers have what was there, or what is.
        """
        if not markers or not self.aborted:
            return
        left = TransactionIndex(self.base_offset)
        for one in self.aborted:
            if one.last_offset not in markers:
                left.append(one)
        if len(left) < len(self.aborted):
            self.has_unsaved_aborts = True  # first: what is unsaved is not released meanwhile
            self._aborted = left

    def release(self) -> None:
        """Frees the memory; the indexes are read again when needed."""
        if not self.is_unsaved:
            self._offsets = self._times = None
            self.release_aborted()

    def release_aborted(self) -> None:
        """Frees the memory of the aborted transactions, if their file has them all; it is read again when needed."""
        if self._aborted and not self.has_unsaved_aborts:
            self._aborted = None  # an empty one stays: it saves a look at the directory

    def remove_files(self) -> None:
        self._remove(paths.SEGMENT_INDEXES)

    def _remove(self, suffixes: Iterable[str]) -> None:
        for suffix in suffixes:
            self._fs.remove(self._path(suffix))

    def _load(self) -> None:
        self._offsets, self._times = self._read_files()
        if self._offsets is None or self._times is None or not self._is_sound(self._offsets):
            self.begin()
            self._note_from(0)
        else:
            self._note_after_last_entry()

    def _read_files(self) -> tuple[OffsetIndex | None, TimeIndex | None]:
        offset_path, time_path = (self._path(suffix) for suffix in paths.SPARSE_INDEXES)
        if not self.have_files:
            return None, None
        try:
            return (
                OffsetIndex.decode(self.base_offset, self._fs.read_bytes(offset_path)),
                TimeIndex.decode(self.base_offset, self._fs.read_bytes(time_path)),
            )
        except StorageError:
            if self.have_files:
                raise
            return None, None  # a swap of compaction has just removed them, in another thread

    def _is_sound(self, offsets: OffsetIndex) -> bool:
        """Whether the last entry points at the batch that it names."""
        if offsets.last is None:
            return True  # batches that no entry covers are walked anyway
        last_offset, position = offsets.last
        try:
            placed = next(read_headers(self._file, position, HEADER_SIZE), None)
        except CorruptLogError:
            return False
        return placed is not None and placed.header.last_offset == last_offset

    def _note_after_last_entry(self) -> None:
        """Brings the newest timestamp and the entry interval up to the end of the file."""
        last = self.offsets.last
        position = last[1] if last is not None else 0
        self._bytes_since_entry = 0
        self._top_timestamp, self._top_offset = self.times.last
        self._is_top_known = True
        self._note_from(position)

    def _note_from(self, position: int) -> None:
        next_offset = self.base_offset
        for placed in read_headers(self._file, position, REPLAY_BYTES):
            header = placed.header
            last_offset = check_order(self._file.path, placed, next_offset, self.base_offset)
            self.note(placed.position, header.size, last_offset, header.newest_record_ms)
            next_offset = last_offset + 1

    @property
    def _directory(self) -> str:
        return paths.parent_of(self._file.path)

    def _path(self, suffix: str) -> str:
        return paths.offset_file(self._directory, self.base_offset, suffix)
