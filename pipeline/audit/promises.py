"""Promises that data directories make about their partitions, besides the logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.audit.audit import Promises
from echoless.pipeline.audit.streams import PartitionOfReplica
from echoless.pipeline.batches.data_directory import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    find_partitions,
    read_offsets,
)

_ALL: Final = 2**63 - 1


def read_promises(paths: Sequence[str]) -> Promises:
    """The directories' checkpoints. After a clean shutdown the whole log is promised."""
    durable: dict[PartitionOfReplica, int] = {}
    high_watermarks: dict[PartitionOfReplica, int] = {}
    for path in paths:
        directory = Path(path)
        recovery_points = read_offsets(directory, RECOVERY_POINT_CHECKPOINT)
        was_clean = any((directory / name).exists() for name in CLEAN_SHUTDOWN)
        for part in find_partitions(directory):
            key = TopicPartition(part.topic, part.partition)
            durable[path, *key] = _ALL if was_clean else recovery_points.get(key, 0)
        for key, offset in read_offsets(directory, HIGH_WATERMARK_CHECKPOINT).items():
            high_watermarks[path, *key] = offset
    return Promises(durable=durable, high_watermarks=high_watermarks)
