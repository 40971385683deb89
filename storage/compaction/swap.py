"""Replacing neighbouring segments by the one that was written from them, so that a crash leaves old or new.

The new segment covers exactly the offsets of the old ones, so its name and the end of its last batch say which
files it replaces:

1. It was written to `<base>.log.cleaned`, by another process to `<base>.<its id>.log.cleaned`, and synced. Crash: the old segments; opening the log removes it.
2. Rename it to `<base>.log.swap`, and sync the directory. Crash before the sync: the old segments, or as after
   it. From then on the replacement is decided, and opening the log carries out the rest.
3. Put the aborted transactions of the others behind those of the first one, in one atomic write. Crash: done
   again, and nothing is left to do.
4. Remove the old segments but the first, the newest first, each before its indexes. Crash: done again from
   step 3.
5. Remove the sparse indexes of the first one, which describe other bytes. Crash: done again from step 3.
6. Rename the new segment over the first one, and sync the directory. Crash: done again from step 3, or done.

The indexes of the new segment are in memory, and the next flush writes them. Producer snapshots at bases that
are gone are removed by the next `Log.start_removal`, or when the log is closed.

Invariant: while a swap runs, no flush writes indexes of the old segments (`Durability.spared`).

Called by `compaction.py`, `run` in any one thread, and `resume` by `recovery.py`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import NamedTuple

from echoless.storage import paths
from echoless.storage.batch_reader import REPLAY_BYTES, read_headers
from echoless.storage.compaction.plan import SourceSegment
from echoless.storage.file_system import CorruptLogError, FileSystem, StorageError
from echoless.storage.log_config import LogConfig
from echoless.storage.segment import Segment
from echoless.storage.segment_indexes import SealedIndexes
from echoless.storage.transaction_index_file import merge_transaction_indexes

logger = logging.getLogger(__name__)


class Cleaned(NamedTuple):
    """A segment that was written, and is not part of its log yet."""

    path: str
    sources: tuple[SourceSegment, ...]
    """The segments that it replaces, oldest first."""
    size: int
    indexes: SealedIndexes
    """The new file's indexes."""
    dropped: frozenset[int] = frozenset()
    """The offsets of markers of aborted transactions of which nothing is left, of these segments and others."""


class PendingSwap:
    """One replacement: `run` changes the files, and the log's owner takes `segment` over."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        cleaned: Cleaned,
        sources: tuple[Segment, ...],
        config: LogConfig,
    ) -> None:
        self.sources = sources
        self.segment: Segment | None = None
        """The new segment, once it is in place."""
        self.error: StorageError | None = None
        """Set if the files were changed only in part: memory and disk may disagree."""
        self._fs = fs
        self._directory = directory
        self._cleaned = cleaned
        self._config = config
        self._is_decided = False
        self._has_run = False
        self._lock = threading.Lock()

    @property
    def is_done(self) -> bool:
        return self.segment is not None

    def run(self) -> None:
        """Does the steps, unless it was cancelled. Raises `StorageError`."""
        with self._lock:
            if self._has_run:
                return
            self._has_run = True
            try:
                self._carry_out()
            except StorageError as error:
                if self._is_decided:
                    self.error = error
                raise

    def _carry_out(self) -> None:
        fs, directory, base = self._fs, self._directory, self.sources[0].base_offset
        for source in self.sources:
            # Before the new segment is there: what leaves these files has no record in the old ones either.
            source.indexes.drop_aborted(self._cleaned.dropped)
            source.indexes.save_aborted()
        self._is_decided = True  # a rename that fails may have taken place
        swap = paths.offset_file(directory, base, paths.SWAP)
        fs.rename(self._cleaned.path, swap)
        fs.sync_directory(directory)
        _put_in_place(fs, directory, base, [s.base_offset for s in self.sources[1:]])
        segment = Segment.open(
            fs, directory, base, self._config, next_offset=self.sources[-1].next_offset
        )
        segment.indexes.adopt(self._cleaned.indexes)
        self.segment = segment

    def cancel(self) -> None:
        """Waits for `run` if it is running, and keeps it from starting otherwise. From any thread."""
        with self._lock:
            self._has_run = True

    def discard(self) -> None:
        """Closes the new segment, which the log does not take over."""
        if self.segment is not None:
            self.segment.close()


def remove_cleaned(fs: FileSystem, directory: str) -> None:
    """Removes the segments that were written in vain."""
    _remove_vain(fs, directory, fs.list_directory(directory))


def _remove_vain(fs: FileSystem, directory: str, names: Iterable[str]) -> None:
    for name in names:
        if name.endswith(paths.CLEANED):
            path = paths.join(directory, name)
            fs.remove(path)
            logger.info("removed %s: the log has changed since compaction wrote it, or ended", path)


def _put_in_place(fs: FileSystem, directory: str, base: int, replaced: Iterable[int]) -> None:
    """Steps 3 to 6. `replaced`: the base offsets of the other old segments, rising."""
    others = [*replaced]
    merge_transaction_indexes(fs, directory, base, others)
    for offset in reversed(others):
        for suffix in (paths.LOG, *paths.SEGMENT_INDEXES):
            fs.remove(paths.offset_file(directory, offset, suffix))
    for suffix in paths.SPARSE_INDEXES:
        fs.remove(paths.offset_file(directory, base, suffix))
    fs.rename(
        paths.offset_file(directory, base, paths.SWAP),
        paths.offset_file(directory, base, paths.LOG),
    )
    fs.sync_directory(directory)


def resume(fs: FileSystem, directory: str, *, is_loss_accepted: bool = False) -> int:
    """Removes what was written in vain, and carries out a replacement that a crash cut short.

    Returns how many segments were put in place. Raises `CorruptLogError` if one of them is damaged: what is
    left of the old segments may not be all of them.
    """
    names = fs.list_directory(directory)
    _remove_vain(fs, directory, names)
    found = [file for file in map(paths.parse_swap_file, names) if file is not None]
    for base in found:
        path = paths.offset_file(directory, base, paths.SWAP)
        try:
            end = _end_of(fs, path, base)
        except CorruptLogError as damage:
            if not is_loss_accepted:
                raise
            logger.warning("dropping the compacted segment %s: %s", path, damage)
            fs.remove(path)
            continue
        _put_in_place(fs, directory, base, _bases_between(names, base, end))
        logger.info(
            "%s: put the compacted segment of offsets %d to %d in place, as a crash had prevented",
            directory,
            base,
            end - 1,
        )
    return len(found)


def _end_of(fs: FileSystem, path: str, base: int) -> int:
    """The offset after the last batch. Raises `CorruptLogError`."""
    file = fs.open(path)
    try:
        end = base
        for placed in read_headers(file, 0, REPLAY_BYTES):
            end = placed.header.next_offset
    finally:
        file.close()
    if end <= base:
        raise CorruptLogError(path, 0, "it holds no batch")
    return end


def _bases_between(names: Iterable[str], base: int, end: int) -> list[int]:
    files = [file for file in map(paths.parse_offset_file, names) if file is not None]
    return sorted({f.offset for f in files if f.suffix != paths.SNAPSHOT and base < f.offset < end})
