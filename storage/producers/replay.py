"""Rebuilding producer state: the newest valid snapshot, then the batch headers and markers after it.

A replayed batch counts as appended at the time that the caller passes, since the log does not record
the broker's clock. Opening a log passes the time of opening, truncation the latest time that the log
knows: never earlier than the true append, so no producer is forgotten early. (An entry from the
snapshot itself keeps its true time.)

Nothing is decided here: what is in a log has been decided on. Called by `recovery.py` and `log.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from echoless.protocol.control_records import EndMarker
from echoless.protocol.dedup import commit
from echoless.protocol.producer_effect import NO_EFFECT, effect_of
from echoless.protocol.record_batch import TRANSACTIONAL_BIT, BatchHeader
from echoless.storage import paths
from echoless.storage.file_system import FileSystem, StorageError
from echoless.storage.producers.open_transactions import ClosedTransaction
from echoless.storage.producers.snapshot import NewerSnapshotError, SnapshotError, read_snapshot
from echoless.storage.producers.state import ProducerStates
from echoless.storage.segments import Segments

logger = logging.getLogger(__name__)


def snapshot_offsets(fs: FileSystem, directory: str) -> list[int]:
    """Offsets of the snapshot files of a log, ascending."""
    files = map(paths.parse_offset_file, fs.list_directory(directory))
    return sorted(file.offset for file in files if file and file.suffix == paths.SNAPSHOT)


def remove_snapshots(fs: FileSystem, directory: str, offsets: Iterable[int]) -> None:
    """Removes snapshot files; the caller syncs the directory if that matters."""
    for offset in offsets:
        fs.remove(paths.offset_file(directory, offset, paths.SNAPSHOT))


def load_snapshot(
    fs: FileSystem, directory: str, producers: ProducerStates, offset_max: int
) -> tuple[int | None, int]:
    """Loads the newest valid snapshot at or below `offset_max`, or clears `producers`.

    Returns its offset (None without one) and how many damaged snapshots were removed on the way.
    """
    producers.clear()
    damaged = 0
    for offset in reversed(snapshot_offsets(fs, directory)):
        if offset > offset_max:
            continue
        path = paths.offset_file(directory, offset, paths.SNAPSHOT)
        try:
            snapshot = read_snapshot(fs, path)
            if snapshot.offset == offset:
                snapshot.load_into(producers)
                return offset, damaged
            reason = f"it is of offset {snapshot.offset}"
        except NewerSnapshotError as error:
            # Without it what it knows would be forgotten, and the version that wrote it would miss it.
            raise StorageError(path, str(error).removeprefix(f"{path}: ")) from error
        except SnapshotError as error:
            reason = str(error)
        logger.warning("dropping the damaged producer snapshot %s: %s", path, reason)
        fs.remove(path)
        damaged += 1
    return None, damaged


class Rebuilt(NamedTuple):
    """The sources of a rebuilt producer state."""

    snapshot_offset: int | None
    """None: no snapshot, so from the batches alone."""
    snapshots_damaged: int
    batches_replayed: int


def rebuild(  # noqa: PLR0917 - the parts of a log, in the order of `Log`'s own
    producers: ProducerStates,
    fs: FileSystem,
    directory: str,
    segments: Segments,
    end: int,
    now_ms: int,
) -> Rebuilt:
    """Makes `producers` the state as of offset `end`."""
    snapshot_offset, damaged = load_snapshot(fs, directory, producers, end)
    start = max(snapshot_offset or 0, segments.first.base_offset)
    replayed = replay_segments(segments, producers, start, end, now_ms) if start < end else 0
    return Rebuilt(snapshot_offset, damaged, replayed)


class Replayed(NamedTuple):
    """The changes that a batch of the log made to its producer."""

    epoch_moved_back: bool
    aborted: ClosedTransaction | None
    """The transaction that it aborted."""


_PLAIN: Final = Replayed(False, None)


def replay_batch(
    producers: ProducerStates, header: BatchHeader, marker: EndMarker | None, now_ms: int
) -> Replayed:
    """Adds one batch of the log to the state."""
    effect = effect_of(header, marker)
    if effect is NO_EFFECT:
        return _PLAIN
    producer_id, offset = header.producer_id, header.base_offset
    entry = producers.get(producer_id)
    after = commit(entry, header, offset, now_ms, producers.window)
    moved_back = entry is not None and header.producer_epoch < entry.producer_epoch
    if header.attributes & TRANSACTIONAL_BIT or producers.open_transaction(producer_id) is not None:
        return Replayed(moved_back, producers.put_transactional(after, header, offset, effect))
    producers.put(producer_id, after)
    return Replayed(True, None) if moved_back else _PLAIN


def replay_segments(
    segments: Segments, producers: ProducerStates, start: int, end: int, now_ms: int
) -> int:
    """Replays the batches from offset `start` up to `end`; returns how many."""
    count = 0
    for segment in segments.from_offset(start):
        if segment.base_offset >= end or segment.next_offset <= start:
            continue
        for header, marker in segment.replay_from(start):
            if header.base_offset >= end:
                break
            replay_batch(producers, header, marker, now_ms)
            count += 1
    return count
