"""Facts about logs besides their batches: checkpoints of data directories, settings of topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.audit.streams import PartitionOfReplica
from echoless.pipeline.batches.data_directory import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    INTERNAL_TOPICS,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    find_partitions,
    read_offsets,
)

_WHOLE_LOG: Final = 2**63 - 1


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

    @classmethod
    def of_cluster(cls, compaction: Mapping[PartitionOfReplica, bool]) -> LogCheckpoints:
        """Returns those of a running cluster, which shows committed records only."""
        return cls(recovery_points={}, high_watermarks={}, cleaned={}, compaction=compaction)


def read_checkpoints(paths: Sequence[str]) -> LogCheckpoints:
    """Reads the checkpoints of data directories. Raises `NotADataDirectoryError`."""
    recovery_points: dict[PartitionOfReplica, int] = {}
    high_watermarks: dict[PartitionOfReplica, int] = {}
    cleaned: dict[PartitionOfReplica, int] = {}
    compaction: dict[PartitionOfReplica, bool] = {}
    for path in paths:
        directory = Path(path)
        is_whole = (directory / META_PROPERTIES).exists()
        cleaner = read_offsets(directory, CLEANER_CHECKPOINT)
        cleaned |= {(path, *key): offset for key, offset in cleaner.items()}
        offsets = read_offsets(directory, RECOVERY_POINT_CHECKPOINT)
        was_clean = any((directory / name).exists() for name in CLEAN_SHUTDOWN)
        for part in find_partitions(directory):
            key = TopicPartition(part.topic, part.partition)
            recovery_points[path, *key] = _WHOLE_LOG if was_clean else offsets.get(key, 0)
            if is_whole or key in cleaner:
                compaction[path, *key] = key in cleaner or part.topic in INTERNAL_TOPICS
        for key, offset in read_offsets(directory, HIGH_WATERMARK_CHECKPOINT).items():
            high_watermarks[path, *key] = offset
    return LogCheckpoints(
        recovery_points=recovery_points,
        high_watermarks=high_watermarks,
        cleaned=cleaned,
        compaction=compaction,
    )
