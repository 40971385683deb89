"""The leader epochs of a log: leader epoch -> the offset at which that leader began to append.

Followers truncate their logs by these entries, not by the high watermark: a replica asks its leader
where its own latest epoch ended, and drops everything beyond that. The rules are those of Kafka's
`LeaderEpochFileCache`; the file is Kafka's `leader-epoch-checkpoint` (`docs/formats/`).

Invariant: epochs and start offsets both grow from entry to entry.
Invariant: below the recovery point the leader epochs on disk are those of the batches.

Nothing here waits for the disk: each flush of the log writes what the file lacks (`unwritten`,
`write`) before the recovery point moves. So the file is correct for all offsets below the recovery
point; those above it are read from the batches when the log is opened. An epoch in which nothing was
appended need not survive a crash.

Called by the log. Knows nothing of batches and replicas.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from echoless.storage.checkpoints import (
    CheckpointError,
    parse_number,
    read_lines,
    split_line,
    write_lines,
)
from echoless.storage.file_system import FileSystem

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1


class LeaderEpoch(NamedTuple):
    """A leader epoch, and the first offset that its leader could have written."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The leader epochs of one partition's log, in one file."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        """Reads the file; no file means no epochs. Raises `CheckpointError` if it is damaged."""
        self._fs = fs
        self._path = path
        self._entries = self._read()
        self.latest_epoch = NO_EPOCH
        """The newest epoch, -1 if there is none; not a property, because every append asks for it."""
        self._note_latest()
        self._written = tuple(self._entries)
        """The entries in the file."""

    @property
    def entries(self) -> tuple[LeaderEpoch, ...]:
        """Every entry, oldest first."""
        return tuple(self._entries)

    def _note_latest(self) -> None:
        self.latest_epoch = self._entries[-1].epoch if self._entries else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Records that `epoch` begins at `start_offset`; entries that contradict it are dropped.

        Does nothing for the latest epoch, unless it turns out to begin earlier than known.
        """
        assert epoch >= 0, f"leader epoch {epoch}"
        assert start_offset >= 0, f"start offset {start_offset}"
        latest = self._entries[-1] if self._entries else None
        if latest is not None and latest.epoch == epoch and latest.start_offset <= start_offset:
            return
        while self._entries and (
            self._entries[-1].epoch >= epoch or self._entries[-1].start_offset >= start_offset
        ):
            self._entries.pop()
        self._entries.append(LeaderEpoch(epoch, start_offset))
        self._note_latest()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The newest epoch not above `epoch`, and the offset at which it ended (exclusive).

        `(-1, -1)` if `epoch` is newer than every entry, or -1. An epoch older than every entry
        gives itself and the first known offset. The latest epoch has not ended: its end is
        `log_end_offset`.
        """
        if epoch == NO_EPOCH or epoch > self.latest_epoch:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        above = bisect_right(self._entries, epoch, key=_epoch_of)
        end_offset = self._entries[above].start_offset
        return (self._entries[above - 1].epoch if above else epoch), end_offset

    def truncate_from_end(self, offset: int) -> None:
        """Drops epochs that begin at or after `offset`, the new end of the log."""
        kept = bisect_left(self._entries, offset, key=_start_of)
        del self._entries[kept:]
        self._note_latest()

    def truncate_from_start(self, offset: int) -> None:
        """Drops epochs that ended at or before `offset`, where the log now begins.

        The epoch that holds `offset` now begins there.
        """
        above = bisect_right(self._entries, offset, key=_start_of)
        if above:
            first = LeaderEpoch(self._entries[above - 1].epoch, offset)
            self._entries[:above] = [first]

    def clear(self) -> None:
        """Drops all entries; the file has already been removed."""
        self._entries, self._written = [], ()
        self._note_latest()

    def unwritten(self, end_offset: int) -> tuple[LeaderEpoch, ...] | None:
        """The entries of all offsets below `end_offset`; None if the file has exactly these."""
        entries = tuple(self._entries[: bisect_left(self._entries, end_offset, key=_start_of)])
        return None if entries == self._written else entries

    def write(self, entries: tuple[LeaderEpoch, ...]) -> None:
        """Replaces the file by these entries, in any one thread; the caller syncs its name."""
        lines = (f"{entry.epoch} {entry.start_offset}" for entry in entries)
        write_lines(self._fs, self._path, lines, sync_name=False)
        self._written = entries

    def _read(self) -> list[LeaderEpoch]:
        entries: list[LeaderEpoch] = []
        for line in read_lines(self._fs, self._path):
            fields = split_line(self._path, line, field_count=2)
            entry = LeaderEpoch(*(parse_number(self._path, field) for field in fields))
            if entries and not (
                entries[-1].epoch < entry.epoch and entries[-1].start_offset < entry.start_offset
            ):
                raise CheckpointError(self._path, f"{entry} does not follow {entries[-1]}")
            entries.append(entry)
        return entries


def _epoch_of(entry: LeaderEpoch) -> int:
    return entry.epoch


def _start_of(entry: LeaderEpoch) -> int:
    return entry.start_offset
