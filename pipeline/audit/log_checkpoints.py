"""Facts about logs besides their batches: checkpoints of data directories, settings of topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.audit.log_bounds import LogBounds
from echoless.pipeline.audit.streams import PartitionOfReplica
from echoless.pipeline.batches.data_directory import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    INTERNAL_TOPICS,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    PartitionDirectory,
    find_partitions,
    has_checked_offsets,
    is_of_echoless,
    list_segments,
    read_offsets,
)

_WHOLE_LOG: Final = 2**63 - 1
_UNFINISHED: Final = ("accepted-loss", "replacement.snapshot")
"""Files that say that the next start creates the log anew, or accepts what it lacks."""
_NAME_KEPT: Final = 185
"""Characters of a topic's name that the names of logs set aside begin with at least."""


@dataclass(slots=True, frozen=True, kw_only=True)
class LogCheckpoints:
    """Offsets that data directories promise for their partitions."""

    recovery_points: Mapping[PartitionOfReplica, int]
    """Offsets below which everything is on disk; after a clean shutdown, the whole log is."""
    high_watermarks: Mapping[PartitionOfReplica, int]
    """Offsets below which everything is committed."""
    cleaned: Mapping[PartitionOfReplica, int]
    """Offsets below which the cleaner has been, of logs that are compacted."""
    compaction: Mapping[PartitionOfReplica, bool]
    """Whether a log may have been compacted, where that is known."""
    meeting: frozenset[PartitionOfReplica] = frozenset()
    """Logs whose files meet though they were compacted, as Echoless leaves them."""
    bounds: Mapping[PartitionOfReplica, LogBounds] = field(default_factory=dict)
    """Beginnings and ends of logs, as far as they are known without the batches."""

    @classmethod
    def of_cluster(
        cls,
        partitions: Collection[PartitionOfReplica],
        compaction: Mapping[PartitionOfReplica, bool],
    ) -> LogCheckpoints:
        """Returns those of a running cluster, which shows committed records only: none is a write cut short."""
        return cls(
            recovery_points=dict.fromkeys(partitions, _WHOLE_LOG),
            high_watermarks={},
            cleaned={},
            compaction=compaction,
        )


def read_checkpoints(paths: Sequence[str]) -> LogCheckpoints:
    """Reads the checkpoints of data directories. Raises `NotADataDirectoryError`."""
    recovery_points: dict[PartitionOfReplica, int] = {}
    high_watermarks: dict[PartitionOfReplica, int] = {}
    compaction: dict[PartitionOfReplica, bool] = {}
    meeting: set[PartitionOfReplica] = set()
    cleaned = read_cleaned(paths)
    for path in paths:
        directory = Path(path)
        is_whole = (directory / META_PROPERTIES).exists()
        offsets = read_offsets(directory, RECOVERY_POINT_CHECKPOINT)
        was_clean = any((directory / name).exists() for name in CLEAN_SHUTDOWN)
        for part in find_partitions(directory):
            key = TopicPartition(part.topic, part.partition)
            recovery_points[path, *key] = _WHOLE_LOG if was_clean else offsets.get(key, 0)
            is_compacted = part.topic in INTERNAL_TOPICS or (path, *key) in cleaned
            if is_whole or is_compacted:
                compaction[path, *key] = is_compacted
            if is_of_echoless(part):
                meeting.add((path, *key))
        for key, offset in read_offsets(directory, HIGH_WATERMARK_CHECKPOINT).items():
            high_watermarks[path, *key] = offset
    return LogCheckpoints(
        recovery_points=recovery_points,
        high_watermarks=high_watermarks,
        cleaned=cleaned,
        compaction=compaction,
        meeting=frozenset(meeting),
        bounds=read_bounds(paths),
    )


def read_cleaned(paths: Iterable[str]) -> dict[PartitionOfReplica, int]:
    """Reads which logs the cleaners of data directories have been in, and up to where."""
    return {
        (path, *key): offset
        for path in paths
        for key, offset in read_offsets(Path(path), CLEANER_CHECKPOINT).items()
    }


def read_bounds(paths: Iterable[str]) -> dict[PartitionOfReplica, LogBounds]:
    """Reads the bounds of the logs in data directories."""
    return {(path, *key): bounds for path in paths for key, bounds in _bounds_in(Path(path))}


def _bounds_in(directory: Path) -> Iterator[tuple[TopicPartition, LogBounds]]:
    """Yields what the directory's file names and checkpoints say of its logs.

    Kafka may leave entries of deleted partitions, and its log starts and high watermarks are no promises after a crash.
    """
    ends = read_offsets(directory, RECOVERY_POINT_CHECKPOINT)
    are_ours = has_checked_offsets(directory, RECOVERY_POINT_CHECKPOINT)
    if are_ours:
        committed = read_offsets(directory, HIGH_WATERMARK_CHECKPOINT)
        ends = {key: max(ends.get(key, 0), committed.get(key, 0)) for key in {*ends, *committed}}
    found = {
        TopicPartition(part.topic, part.partition): part for part in find_partitions(directory)
    }
    files = {key: _first_and_last(part) for key, part in found.items()}
    # Read after the names: nothing is removed before the log start that allows it is written.
    starts = read_offsets(directory, LOG_START_CHECKPOINT) if are_ours else {}
    for key, names in files.items():
        if names is not None:
            yield key, LogBounds(*names, starts.get(key), ends.get(key, 0))
    if are_ours:
        present = [entry.name for entry in directory.iterdir()]
        for key in ends.keys() - found.keys():
            # Logs that are being deleted, or were set aside, have a name with a suffix.
            begin, middle = key.topic[:_NAME_KEPT], f"-{key.partition}."
            if not any(name.startswith(begin) and middle in name for name in present):
                yield key, LogBounds(end=ends[key])


def _first_and_last(part: PartitionDirectory) -> tuple[int, int] | None:
    """Returns the offsets in the names of the first and the last file; None if the next start changes the log."""
    names = [entry.name for entry in part.path.iterdir()]
    if any(name in _UNFINISHED or name.endswith(".swap") for name in names):
        return None
    segments = [int(segment.stem) for segment in list_segments(part)]
    return (segments[0], segments[-1]) if segments else None
