"""Checkpoints of data directories: what they promise about their logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.audit.streams import PartitionOfReplica
from echoless.pipeline.batches.data_directory import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
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

    @classmethod
    def none(cls) -> LogCheckpoints:
        """Returns those of a running cluster, which shows committed records only."""
        return cls(recovery_points={}, high_watermarks={})


def read_checkpoints(paths: Sequence[str]) -> LogCheckpoints:
    """Reads the checkpoints of data directories. Raises `NotADataDirectoryError`."""
    recovery_points: dict[PartitionOfReplica, int] = {}
    high_watermarks: dict[PartitionOfReplica, int] = {}
    for path in paths:
        directory = Path(path)
        offsets = read_offsets(directory, RECOVERY_POINT_CHECKPOINT)
        was_clean = any((directory / name).exists() for name in CLEAN_SHUTDOWN)
        for part in find_partitions(directory):
            key = TopicPartition(part.topic, part.partition)
            recovery_points[path, *key] = _WHOLE_LOG if was_clean else offsets.get(key, 0)
        for key, offset in read_offsets(directory, HIGH_WATERMARK_CHECKPOINT).items():
            high_watermarks[path, *key] = offset
    return LogCheckpoints(recovery_points=recovery_points, high_watermarks=high_watermarks)
