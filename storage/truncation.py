"""Truncating a log, durably, as a follower does whose log diverges from its leader's.

1. Lower the recovery point and the log start on disk. Crash: more is scanned than needed.
2. Remove the snapshots above the cut, durably. Crash: an older one is loaded, and more replayed.
3. Remove the segments above the cut, newest first. Crash: the log ends between two of them.
4. Cut the segment that holds the cut, and sync it. Crash: the log ends before the cut or after it.

The leader epochs are cut in memory by the caller. Crash: opening the log cuts them to its recovery
point, and reads the rest from the batches.

Called by `log.py`. Knows nothing of what the producers did.
"""

from __future__ import annotations

from storage.durability import Durability
from storage.file_system import FileSystem
from storage.producers.replay import remove_snapshots, snapshot_offsets
from storage.segments import Segments


def cut_files(  # noqa: PLR0917 - what a log is made of, as in `Segment.create`
    fs: FileSystem,
    directory: str,
    segments: Segments,
    durability: Durability,
    offset: int,
    log_start_offset: int,
) -> None:
    """Does the steps; the last batch to keep ends at `offset`. Raises `StorageError`, half done."""
    durability.lower_to(offset, log_start_offset)
    _remove_snapshots_above(fs, directory, durability, offset)
    while segments.active.base_offset > offset:
        segments.pop_last().remove()
    segments.active.truncate_to(offset)
    fs.sync_directory(directory)


def _remove_snapshots_above(
    fs: FileSystem, directory: str, durability: Durability, offset: int
) -> None:
    durability.drop_snapshots_above(offset)
    above = [o for o in snapshot_offsets(fs, directory) if o > offset]
    remove_snapshots(fs, directory, reversed(above))
    fs.sync_directory(directory)
