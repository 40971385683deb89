"""The recovery point of one log, below which it is safely on disk, and the flush that raises it.

Invariant: everything below `recovery_point` has been synced.
Invariant: at most one flush is pending.

Called by `log.py`, in the owner's thread; `pending_flush.py` has the steps of a flush.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from echoless.storage import paths
from echoless.storage.file_system import FileSystem
from echoless.storage.leader_epochs import LeaderEpochs
from echoless.storage.pending_flush import PendingFlush, Snapshot
from echoless.storage.segment import Segment
from echoless.storage.segments import Segments


class Durability:
    """The recovery point, and everything that the next flush has to write."""

    __slots__ = (
        "_directory",
        "_fs",
        "_has_new_files",
        "_leader_epochs",
        "_make_name_durable",
        "_pending",
        "_snapshots",
        "_spared",
        "recovery_point",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        *,
        recovery_point: int,
        snapshots: dict[int, Snapshot],
        leader_epochs: LeaderEpochs,
        make_name_durable: Callable[[], None] | None,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self.recovery_point = recovery_point
        self._snapshots = snapshots
        """Producer snapshots by offset, not yet written by a flush."""
        self._leader_epochs = leader_epochs
        self._make_name_durable = make_name_durable
        """Set while a power failure would take the directory itself."""
        self._has_new_files = True
        """Whether the names of created files may not be on disk."""
        self._pending: PendingFlush | None = None
        self._spared: frozenset[Segment] = frozenset()
        """Closed segments that compaction is about to replace: no flush writes their indexes."""

    @property
    def unwritten_snapshots(self) -> frozenset[int]:
        """Offsets of the snapshots that the next flush writes."""
        return frozenset(self._snapshots)

    @property
    def has_unwritten_snapshots(self) -> bool:
        return bool(self._snapshots)

    def note_new_segment(self) -> None:
        self._has_new_files = True

    def add_snapshot(self, offset: int, snapshot: Snapshot) -> None:
        """Adds the producer state as of `offset` to what the next flush encodes and writes."""
        self._snapshots[offset] = snapshot

    @property
    def make_name_durable(self) -> Callable[[], None] | None:
        """Makes the directory's name durable, in any one thread; None if it is."""
        return self._make_name_durable

    def begin_at(self, offset: int) -> None:
        """Starts over: the log has been replaced by an empty one at `offset`, which is on disk."""
        self._snapshots.clear()
        self._make_name_durable = None
        self.recovery_point = offset

    def end_at(self, offset: int) -> None:
        """Drops what is above `offset`: the log has been cut there, durably."""
        for above in [o for o in self._snapshots if o > offset]:
            del self._snapshots[above]
        self.recovery_point = min(self.recovery_point, offset)

    def start_flush(self, segments: Segments, end_offset: int) -> PendingFlush:
        """Returns the work that makes everything below `end_offset` safe; `finish_flush` is next."""
        assert self._pending is None, "a flush is pending"
        directory = self._directory
        self._pending = PendingFlush(
            end_offset=end_offset,
            directory=directory,
            segments=[s for s in segments if s.next_offset > self.recovery_point],
            unsaved=[s for s in segments.closed if s.indexes.is_unsaved and s not in self._spared],
            snapshots={
                paths.offset_file(directory, offset, paths.SNAPSHOT): snapshot
                for offset, snapshot in self._snapshots.items()
            },
            snapshot_offsets=tuple(self._snapshots),
            has_new_files=self._has_new_files,
            make_name_durable=self._make_name_durable,
            leader_epochs=self._leader_epochs,
            epochs=self._leader_epochs.unwritten(end_offset),
            fs=self._fs,
        )
        self._has_new_files = False
        return self._pending

    def spare(self, segments: Collection[Segment]) -> bool:
        """Has flushes leave these segments alone; False if one is working on any of them."""
        pending = self._pending
        if pending is not None and not {*segments}.isdisjoint(
            (*pending.segments, *pending.unsaved)
        ):
            return False
        self._spared = frozenset(segments)
        return True

    def spare_none(self) -> None:
        """Ends `spare`."""
        self._spared = frozenset()

    def start_last_flush(self, segments: Segments, end_offset: int) -> PendingFlush:
        """Returns the same for a log that is being closed, including the active segment's indexes."""
        active = segments.active
        active.indexes.seal()
        pending = self.start_flush(segments, end_offset)
        if active.indexes.need_files:
            pending.unsaved = [*pending.unsaved, active]
        return pending

    def is_saved(self, segments: Segments, end_offset: int, loaded_snapshot: int | None) -> bool:
        """Whether nothing has happened since a clean opening: idle logs must not slow a shutdown.

        `loaded_snapshot` is the offset of the snapshot that was loaded then. A log that has never
        held anything is made again if it is lost.
        """
        active = segments.active.indexes
        return not end_offset or (
            self.recovery_point == end_offset == loaded_snapshot
            and not self._snapshots
            and self._leader_epochs.unwritten(end_offset) is None
            and not any(segment.indexes.is_unsaved for segment in segments.closed)
            and not (active.is_unsaved and active.need_files)
        )

    def finish_flush(self, pending: PendingFlush) -> None:
        """Notes what `pending.run` did, or that it failed or was cancelled."""
        if pending is not self._pending:
            return
        self._pending = None
        if not pending.is_done:
            self._has_new_files |= pending.has_new_files
            return
        self.recovery_point = max(self.recovery_point, pending.end_offset)
        self._make_name_durable = None
        for offset in pending.snapshot_offsets:
            self._snapshots.pop(offset, None)
        for segment in pending.unsaved:
            segment.indexes.is_unsaved = False
            segment.indexes.release()

    def cancel_flush(self) -> None:
        """Returns when no flush is running; what a finished one did counts."""
        if self._pending is not None:
            self._pending.cancel()
            self.finish_flush(self._pending)

    def disown_flush(self) -> PendingFlush | None:
        """Returns the flush that may be running, if any: the log is about to be changed.

        The change cancels it before its first step, or with itself. It does not count any more: what
        it does is done again by the next flush.
        """
        if self._pending is not None and self._pending.is_done:
            self.finish_flush(self._pending)
        pending, self._pending = self._pending, None
        if pending is not None:
            self._has_new_files |= pending.has_new_files
        return pending

    def abandon_flush(self) -> None:
        """Returns when no flush is running; `finish_flush` is still to be called. From any thread."""
        pending = self._pending
        if pending is not None:
            pending.cancel()
