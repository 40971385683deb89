"""The transactions of a log that is compacted: which were aborted, and which markers are still needed.

A pass covers whole segments below the last stable offset, so every transaction with a batch in them has ended: it was
aborted if a segment's file of aborted transactions says so, and committed otherwise. A pass reads batches twice, in the
order of their offsets: for their keys, where aborted ones do not count, and to copy them, where aborted ones lose all records.

A marker stays

* while a batch of its transaction does, emptied ones and the end of a segment included: else a log that is replayed
  would have the transaction open for ever;
* while it is the last one of its producer in the producer snapshot at the end of the pass, or the one that has its
  highest number (`protocol/marker_decision.py`);
* then for `delete.retention.ms`, as a tombstone does: a reader in the midst of the transaction still finds it;
* while the newest producer snapshot at or below its segment's base has the transaction open: a replica that begins
  there finds its end.

An aborted transaction leaves the file of its segment in the first pass that finds no batch of it, so never before its
records are gone, and never after its marker: a client would wait for that, and drop what is committed.

Invariant: no marker goes while a batch of its transaction, or a snapshot that begins within it, is there.
Invariant: an aborted transaction is in the file of its marker's segment while one of its records is in the log.

Called by `cleaning.py` and `rewrite.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from echoless.protocol.control_records import NO_NUMBER, EndMarker
from echoless.protocol.marker_decision import LastMarker
from echoless.protocol.record_batch import BatchHeader
from echoless.storage import paths
from echoless.storage.compaction.plan import SourceSegment
from echoless.storage.file_system import FileSystem
from echoless.storage.producers.open_transactions import ClosedTransaction
from echoless.storage.producers.replay import snapshot_offsets
from echoless.storage.producers.snapshot import SnapshotError, read_snapshot
from echoless.storage.segment import Segment
from echoless.storage.transaction_index_file import read_transaction_index


def read_aborts(
    fs: FileSystem,
    directory: str,
    sources: Iterable[SourceSegment],
    later: Iterable[ClosedTransaction],
) -> Iterator[ClosedTransaction]:
    """Yields the aborted transactions of `sources`, by their markers, then those `later`; reads each file when it is needed."""
    for source in sources:
        yield from read_transaction_index(fs, directory, source.base_offset)
    yield from later


def aborts_behind(end_offset: int, segments: Iterable[Segment]) -> list[ClosedTransaction]:
    """The aborted transactions that begin below `end_offset`, and have their marker in the segments from there on."""
    found: list[ClosedTransaction] = []
    for segment in segments:
        ranges = segment.indexes.aborted.find(end_offset, end_offset)
        found += ranges.transactions
        if ranges.is_complete:
            break
    return found


class TransactionOutcomes:
    """The outcomes of the transactions of a walk over batches, in the order of their offsets."""

    __slots__ = ("_aborted", "_coming", "_known_to")

    def __init__(self, aborted: Iterator[ClosedTransaction]) -> None:
        """`aborted`: by their markers, those of the whole log, and others that were."""
        self._coming = aborted
        self._known_to = 0
        """Aborted transactions that begin below it are known."""
        self._aborted: dict[int, deque[ClosedTransaction]] = {}
        """By producer id, those that the walk has not passed, by their markers."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the batch, which is transactional, is part of an aborted transaction."""
        aborted = self._at(header)
        return aborted is not None and aborted.first_offset <= header.base_offset

    def take_aborted(self, header: BatchHeader) -> bool:
        """Whether the batch, a marker, ends an aborted transaction that the files know; forgets it."""
        aborted = self._at(header)
        if aborted is None or aborted.last_offset != header.last_offset:
            return False
        known = self._aborted[header.producer_id]
        known.popleft()
        if not known:
            del self._aborted[header.producer_id]
        return True

    def _at(self, header: BatchHeader) -> ClosedTransaction | None:
        """The producer's first aborted transaction that does not end before the batch."""
        offset, producer_id = header.last_offset, header.producer_id
        while self._known_to <= offset:
            coming = next(self._coming, None)
            if coming is None:
                self._known_to = 2**63
                break
            # Those whose marker comes later begin no earlier.
            self._known_to = max(self._known_to, coming.last_stable_offset)
            if coming.last_offset >= offset:
                self._aborted.setdefault(coming.producer_id, deque()).append(coming)
        known = self._aborted.get(producer_id)
        while known and known[0].last_offset < offset:
            known.popleft()
        return known[0] if known else None


class TransactionCopy:
    """The transactions of a pass that copies segments."""

    __slots__ = ("_directory", "_fs", "_left", "_opened", "_outcomes", "_read", "_segment_base", "dropped", "last_markers")  # fmt: skip

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        aborted: Iterator[ClosedTransaction],
        last_markers: Mapping[int, LastMarker],
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._outcomes = TransactionOutcomes(aborted)
        self.last_markers = last_markers
        self.dropped: set[int] = set()
        """The offsets of markers whose transaction leaves the file of its segment, since the last `take_dropped`."""
        self._read: set[int] = set()
        """Producers of whose present transaction a batch was read."""
        self._left: set[int] = set()
        """The same, and it stays."""
        self._segment_base = 0
        self._opened: frozenset[int] | None = None
        """Producers with an open transaction in the snapshot that goes with the segment; None: not read yet."""

    def begin_segment(self, base_offset: int) -> None:
        """Takes batches of this segment from now on."""
        self._segment_base = base_offset
        self._opened = None

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the batch, which is transactional, is part of an aborted transaction."""
        return self._outcomes.is_aborted(header)

    def note(self, header: BatchHeader, *, is_left: bool) -> None:
        """Notes a transactional batch, and whether one is left in its place."""
        self._read.add(header.producer_id)
        if is_left:
            self._left.add(header.producer_id)

    def is_needed(self, header: BatchHeader, marker: EndMarker) -> bool:
        """Whether the marker stays; its transaction has ended now."""
        producer_id = header.producer_id
        was_read, is_left = producer_id in self._read, producer_id in self._left
        self._read.discard(producer_id)
        self._left.discard(producer_id)
        if self._outcomes.take_aborted(header) and not was_read:
            self.dropped.add(header.last_offset)
        last = self.last_markers.get(producer_id)
        is_last = last is not None and (
            last.offset == header.last_offset or NO_NUMBER != marker.number == last.number
        )
        return is_left or is_last

    def take_dropped(self) -> frozenset[int]:
        """Returns the `dropped` ones, and starts anew."""
        dropped, self.dropped = frozenset(self.dropped), set()
        return dropped

    def is_open_in_snapshot(self, producer_id: int) -> bool:
        """Whether a log that begins with the snapshot before the segment needs a marker of the producer."""
        if self._opened is None:
            self._opened = _opened_at(self._fs, self._directory, self._segment_base)
        return producer_id in self._opened


def _opened_at(fs: FileSystem, directory: str, base_offset: int) -> frozenset[int]:
    """Producers with an open transaction in the newest sound snapshot at or below the offset."""
    for offset in reversed(snapshot_offsets(fs, directory)):
        if offset > base_offset:
            continue
        try:
            snapshot = read_snapshot(fs, paths.offset_file(directory, offset, paths.SNAPSHOT))
        except SnapshotError:
            continue  # a start drops it, and takes an older one
        return frozenset(producer_id for producer_id, _ in snapshot.transactions.open)
    return frozenset()
