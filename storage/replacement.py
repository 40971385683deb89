"""Replacing a whole log by an empty one that has the producer state of everything below it.

A replica whose log has nothing in common with its leader's starts over where the leader's log begins.
Only a snapshot knows the producers whose batches are deleted there, so the empty log must never exist
without it:

0. Check the snapshot, remove the old segments that were given up, and make the directory's name
   durable; the flush that was pending has ended (`pending_change.py`). Crash: the old log.
1. Write the snapshot as `replacement.snapshot`, atomically and durably. Crash before: the old log.
   From then on the replacement is decided, and opening the log carries out the rest.
2. Remove segments, indexes, snapshots and leader epochs. Crash: done again from step 2.
3. Create the empty segment at the snapshot's offset, durably. Crash: done again from step 2.
4. Move the offsets that are kept elsewhere to where the log now begins. Crash: done again from step 2,
   which does not use them.
5. Rename the snapshot to the name that its offset gives it, durably. Crash: done again from step 2, or
   done.

Invariant: there is never an empty log that begins at an offset without the producer state below it.

Called by `log.py`, in any one thread (`pending_change.py`), and by `recovery.py`. Knows nothing of what a
snapshot means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from echoless.protocol.record_batch import Buffer
from echoless.storage import paths
from echoless.storage.file_system import CorruptLogError, FileSystem, StorageError
from echoless.storage.kept_offsets import KeptOffsets
from echoless.storage.log_config import LogConfig
from echoless.storage.pending_segment_removal import PendingSegmentRemoval
from echoless.storage.producers.snapshot import (
    NewerSnapshotError,
    Snapshot,
    SnapshotError,
    decode_snapshot,
    read_snapshot,
    shift_times,
)
from echoless.storage.producers.state import ProducerStates
from echoless.storage.segment import Segment


class NewBeginning(NamedTuple):
    """The producer state below a log that is about to begin."""

    data: Buffer
    state: Snapshot


def snapshot_at(offset: int, snapshot: Buffer, clock_ahead_ms: int) -> NewBeginning:
    """The leader's snapshot in this broker's time; see `Log.reset_to`.

    Raises `SnapshotError` if it is damaged or of another offset.
    """
    data = shift_times(snapshot, clock_ahead_ms)
    state = decode_snapshot(data)
    if state.offset != offset:
        raise SnapshotError(f"it is of offset {state.offset}, not {offset}")
    return NewBeginning(data, state)


class NewLog(NamedTuple):
    """An empty log on disk, and the producers below it."""

    segment: Segment
    producers: ProducerStates


@dataclass(slots=True, kw_only=True, eq=False)
class Replacement:
    """One replacement, with everything in it that the owner leaves alone until it is finished."""

    directory: str
    offset: int
    snapshot: Buffer
    clock_ahead_ms: int
    removal: PendingSegmentRemoval | None
    make_name_durable: Callable[[], None] | None
    kept: KeptOffsets
    config: LogConfig
    producers: ProducerStates
    """Empty; becomes the leader's state."""
    now_ms: int
    fs: FileSystem
    _new: NewLog | None = None

    def carry_out(self) -> NewLog:
        """Does the steps. Raises `SnapshotError`, with nothing changed; `StorageError`, half done."""
        begun = snapshot_at(self.offset, self.snapshot, self.clock_ahead_ms)
        if self.removal is not None:
            self.removal.run()
        if self.make_name_durable is not None:
            self.make_name_durable()
        self.fs.write_atomic(paths.join(self.directory, paths.REPLACEMENT), begun.data)
        segment = carry_out(
            self.fs, self.directory, self.offset, self.config, self.now_ms, self.kept
        )
        self._new = NewLog(segment, self.producers)
        begun.state.load_into(self.producers)
        return self._new

    def discard(self) -> None:
        """Closes the new segment, which the log does not have yet."""
        if self._new is not None:
            self._new.segment.close()


def carry_out(  # noqa: PLR0917 - what a log is made of, as in `Segment.create`
    fs: FileSystem, directory: str, offset: int, config: LogConfig, now_ms: int, kept: KeptOffsets
) -> Segment:
    """Steps 2 to 5; returns the new log's only segment. Raises `StorageError`, with no file open."""
    for name in reversed(fs.list_directory(directory)):
        if (
            paths.parse_offset_file(name)
            or paths.is_of_compaction(name)
            or name == paths.LEADER_EPOCH_CHECKPOINT
        ):
            fs.remove(paths.join(directory, name))
    segment = Segment.create(fs, directory, offset, config, now_ms)
    try:
        fs.sync_directory(directory)
        kept.lower(offset)
        kept.put_log_start(offset)
        decided = paths.join(directory, paths.REPLACEMENT)
        fs.rename(decided, paths.offset_file(directory, offset, paths.SNAPSHOT))
        fs.sync_directory(directory)
    except StorageError:
        segment.close()
        raise
    return segment


def resume(
    fs: FileSystem, directory: str, config: LogConfig, now_ms: int, kept: KeptOffsets
) -> int | None:
    """Finishes a replacement that a crash cut short; returns the offset at which the log now begins.

    None if there was none. Raises `CorruptLogError` if the snapshot is damaged: what is left of the
    old log may lack segments.
    """
    path = paths.join(directory, paths.REPLACEMENT)
    if not fs.exists(path):
        return None
    try:
        offset = read_snapshot(fs, path).offset
    except NewerSnapshotError as error:
        raise StorageError(path, str(error).removeprefix(f"{path}: ")) from error
    except SnapshotError as error:
        raise CorruptLogError(path, 0, str(error)) from error
    carry_out(fs, directory, offset, config, now_ms, kept).close()
    return offset
