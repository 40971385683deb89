"""One pass over one log, in small steps that any one thread may do.

    for step in cleaning.steps():       a thread, or another process (`worker.py`): reads and writes a little
        if step is a Cleaned segment:   the owner swaps it for its sources (`swap.py`)

First the keys of the dirty part are read into the map, then the segments are copied into new files, as many into
each as what is left of them allows. The last batch of a new file stays, emptied if need be: it says where the
segment ends. Those of the segments that were copied before the last one go like any other.

The sources are read through files of its own, and every CRC is compared: damage must not get a new one.

Invariant: the last batch of every segment that compaction writes stays, so segments meet.

Nothing here touches the log: whether the sources are still what they were is for the owner to check before
a swap. Called by `compaction.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import Buffer, read_header
from echoless.storage import paths
from echoless.storage.batch_reader import PlacedBatch, read_batches
from echoless.storage.compaction.key_map import KeyMap, NewestOffsets
from echoless.storage.compaction.merging import may_join
from echoless.storage.compaction.plan import Pass, SourceSegment
from echoless.storage.compaction.remembered import Remembered
from echoless.storage.compaction.rewrite import CleaningRules, emptied, note_keys, rewritten
from echoless.storage.compaction.swap import Cleaned
from echoless.storage.compaction.transactions import (
    TransactionCopy,
    TransactionOutcomes,
    read_aborts,
)
from echoless.storage.file_system import CorruptLogError, File, FileSystem, StorageError
from echoless.storage.log_config import LogConfig
from echoless.storage.offset_order import check_order
from echoless.storage.producers.open_transactions import ClosedTransaction
from echoless.storage.segment_indexes import SegmentIndexes

READ_BYTES: Final = 256 * 1024
PAUSE_BYTES: Final = 16 * 1024
"""A step ends after so many bytes, or in the midst of a batch of many records: a fifth of a millisecond, for which
the thread may keep the interpreter from the event loop."""
_WRITE_BYTES: Final = 128 * 1024
_MARKS_SHARE: Final = 4
"""Part of the memory for keys that the marks of newest offsets may take besides: keys take less than is reckoned with."""
Step = Cleaned | None


@dataclass(slots=True, kw_only=True)
class CleaningReport:
    """The figures of a pass."""

    bytes_read: int = 0
    bytes_written: int = 0
    bytes_before: int = 0
    """Size of the segments that were replaced."""
    bytes_after: int = 0
    keys: int = 0
    cleaned_to: int = 0
    """The offset at which the next pass begins to read keys."""
    horizon_ms: int | None = None
    """The time from which on the first tombstone that stayed may go."""


class CleaningJob(NamedTuple):
    """Everything that a pass needs, besides a file system; can be pickled."""

    directory: str
    sources: tuple[SourceSegment, ...]
    """The closed segments from the first one to the end of the pass."""
    range_: Pass
    config: LogConfig
    later_aborts: tuple[ClosedTransaction, ...]
    """Transactions that begin in the sources, and were aborted behind them."""
    map_bytes_max: int
    now_ms: int
    steady_ms: int
    """The data directory's clock."""
    writer: str = ""
    """Begins the suffix of the files that the pass writes: no other process may have files of the same name."""


class Cleaning:
    """One pass."""

    def __init__(self, fs: FileSystem, job: CleaningJob) -> None:
        self.report = CleaningReport(cleaned_to=job.range_.dirty_start)
        self.fs = fs
        self.job = job
        self._keys = KeyMap(job.map_bytes_max)
        self._noted_from = job.range_.dirty_start
        """The first offset of the batches whose keys are in the map: one may begin below the dirty part."""

    def steps(self) -> Generator[Step, None, None]:
        """Does the pass. Raises `StorageError`, `SnapshotError`."""
        yield from self._read_keys()
        job, keys, report = self.job, self._keys, self.report
        report.keys = len(keys.offsets)
        sources = [s for s in job.sources if s.base_offset < keys.end_offset]
        if not sources:
            return
        remembered = Remembered()
        yield from remembered.load(
            self.fs,
            job.directory,
            job.range_.end_offset,
            job.config,
            job.steady_ms,
        )
        newest = NewestOffsets()
        yield from newest.load(keys, self._noted_from, job.map_bytes_max // _MARKS_SHARE)
        verdict = CleaningRules(
            keys=keys,
            newest=newest,
            now_ms=job.now_ms,
            delete_retention_ms=job.config.compaction_rules.delete_retention_ms,
            is_remembered=remembered.__contains__,
            transactions=TransactionCopy(
                self.fs,
                job.directory,
                read_aborts(self.fs, job.directory, job.sources, job.later_aborts),
                remembered.last_markers,
            ),
        )
        waiting = deque(sources)
        while waiting:
            cleaned = yield from _Copy(self, waiting, verdict).steps()
            if cleaned is not None:
                yield cleaned
        report.horizon_ms = verdict.horizon_ms
        report.cleaned_to = keys.end_offset

    def _read_keys(self) -> Generator[None, None, None]:
        job, keys, start = self.job, self._keys, self.job.range_.dirty_start
        keys.end_offset = start
        sources = [s for s in job.sources if s.next_offset > start]
        outcomes = TransactionOutcomes(
            read_aborts(self.fs, job.directory, sources, job.later_aborts)
        )
        for segment in sources:
            pause = 0
            for placed in self.batches(segment):
                header = placed.header
                if header.next_offset <= start:
                    continue
                if keys.is_full:
                    return
                self._noted_from = min(self._noted_from, header.base_offset)
                yield from _checked(
                    note_keys(placed.batch, header, keys, outcomes), segment, placed
                )
                keys.end_offset = header.next_offset
                pause += header.size
                if pause >= PAUSE_BYTES:
                    yield
                    pause = 0
            keys.end_offset = segment.next_offset

    def batches(self, segment: SourceSegment) -> Iterator[PlacedBatch]:
        """Yields the batches of a source, checked. Raises `CorruptLogError`."""
        file = self.fs.open(segment.path)
        with closing(file):
            end = segment.base_offset
            for placed in read_batches(file, READ_BYTES):
                end = check_order(file.path, placed, end, segment.base_offset) + 1
                self.report.bytes_read += placed.header.size
                yield placed
            if end != segment.next_offset:
                reason = f"the records end before {end}, not {segment.next_offset}"
                raise CorruptLogError(file.path, file.size, reason)


class _Copy:
    """Copies the first of the waiting segments into a file of its own, and those after it that fit."""

    def __init__(
        self, cleaning: Cleaning, waiting: deque[SourceSegment], verdict: CleaningRules
    ) -> None:
        self._cleaning = cleaning
        self._waiting = waiting
        self._sources: list[SourceSegment] = []
        self._verdict = verdict
        self._is_changed = False
        self._end: Buffer | None = None
        """The last batch of the segment that was copied last, without records, if it was left out."""
        self._unwritten: list[Buffer] = []
        self._position = 0
        """The size of the new file once all is written."""
        self._written = 0
        base = waiting[0].base_offset
        self._path = paths.offset_file(
            cleaning.job.directory, base, cleaning.job.writer + paths.CLEANED
        )

    def steps(self) -> Generator[None, None, Cleaned | None]:
        """Returns the new segment, synced; None if it would be the same as the old one."""
        fs = self._cleaning.fs
        fs.remove(self._path)
        file = fs.open(self._path, create=True)
        try:
            indexes = SegmentIndexes(
                fs,
                file,
                self._waiting[0].base_offset,
                self._cleaning.job.config.index_interval_bytes,
            )
            indexes.begin()
            yield from self._copy(file, indexes)
            sealed = indexes.seal()
            dropped = self._verdict.transactions.take_dropped()
            if not self._is_changed:
                fs.remove(self._path)
                return None
            file.sync()
            fs.set_modified_ms(self._path, fs.modified_ms(self._sources[-1].path))
            size = file.size
        except BaseException:
            with suppress(StorageError):
                fs.remove(self._path)
            raise
        finally:
            file.close()
        report = self._cleaning.report
        report.bytes_before += sum(source.size for source in self._sources)
        report.bytes_after += size
        return Cleaned(self._path, tuple(self._sources), size, sealed, dropped)

    def _copy(self, file: File, indexes: SegmentIndexes) -> Generator[None, None, None]:
        bytes_max, sources, waiting = (
            self._cleaning.job.config.segment_bytes,
            self._sources,
            self._waiting,
        )
        while waiting and (not sources or may_join(sources, self._position, waiting[0], bytes_max)):
            sources.append(waiting.popleft())
            self._end = None
            yield from self._copy_segment(sources[-1], file, indexes)
        self._is_changed |= len(sources) > 1
        if self._end is not None:
            self._put(self._end, indexes)
        self._write(file)

    def _copy_segment(
        self, segment: SourceSegment, file: File, indexes: SegmentIndexes
    ) -> Generator[None, None, None]:
        read, transactions = 0, self._verdict.transactions
        transactions.begin_segment(segment.base_offset)
        for placed in self._cleaning.batches(segment):
            header = placed.header
            batch = yield from _checked(
                rewritten(placed.batch, header, self._verdict), segment, placed
            )
            is_end = header.next_offset == segment.next_offset
            if header.is_transactional and not header.is_control:
                transactions.note(header, is_left=batch is not None or is_end)
            if batch is None and is_end:
                self._end = emptied(header)
                self._is_changed |= self._end != placed.batch
            else:
                self._is_changed |= batch is not placed.batch
            if batch is not None:
                # A view is valid until the next piece of the file is read.
                self._put(bytes(batch) if batch is placed.batch else batch, indexes)
            read += header.size
            if self._position - self._written >= _WRITE_BYTES:
                self._write(file)
            if read >= PAUSE_BYTES:
                read = 0
                yield

    def _put(self, batch: Buffer, indexes: SegmentIndexes) -> None:
        header = read_header(batch)
        self._unwritten.append(batch)
        indexes.note(self._position, len(batch), header.last_offset, header.newest_record_ms)
        self._position += len(batch)

    def _write(self, file: File) -> None:
        waiting = self._unwritten
        if waiting:
            file.append([b"".join(waiting)])
            self._cleaning.report.bytes_written += self._position - self._written
            self._written = self._position
            waiting.clear()


def _checked(
    work: Generator[None, None, Buffer | None], segment: SourceSegment, placed: PlacedBatch
) -> Generator[None, None, Buffer | None]:
    """Does the work on one batch. Raises `CorruptLogError` if its records cannot be read."""
    try:
        return (yield from work)
    except DecodeError as error:
        raise CorruptLogError(segment.path, placed.position, str(error)) from error
