"""Files of a data directory that an audit reads, by their documented names and formats.

`docs/formats/`: data-directory.md, segment.md (`.log`, `.index`), checkpoints.md. They are Apache Kafka's, or differ
in a checksum, so a Kafka broker's log directory can be read, too. Nothing is written here.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.batches.segment_scan import SegmentRange
from echoless.protocol.record_batch import HEADER_SIZE, read_header

HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"
INTERNAL_TOPICS: Final = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
)
CLEAN_SHUTDOWN: Final = (".clean-shutdown", ".kafka_cleanshutdown")

_SEGMENT: Final = re.compile(r"(\d{20})\.log")
_PARTITION: Final = re.compile(r"([a-zA-Z0-9._-]+)-(0|[1-9]\d*)")
_INDEX_ENTRY: Final = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])

Index = npt.NDArray[np.void]
"""Array of `_INDEX_ENTRY`, both fields ascending."""


class NotADataDirectoryError(Exception):
    """A path has nothing to audit; the message says what is expected there."""


class PartitionDirectory(NamedTuple):
    """Directory of one partition's files."""

    topic: str
    partition: int
    path: Path


def find_partitions(path: Path) -> list[PartitionDirectory]:
    """Finds the partitions of a data directory, or the one whose directory `path` is.

    Raises `NotADataDirectoryError`.
    """
    found = [part for part in map(_partition_at, _directories(path)) if part is not None]
    alone = _partition_at(path.resolve())
    if not found and alone is not None and list_segments(alone):
        found = [alone._replace(path=path)]
    if not found:
        raise NotADataDirectoryError(
            f"{path} holds no <topic>-<partition> directory; give a broker's data directory"
        )
    return sorted(found)


def _directories(path: Path) -> list[Path]:
    try:
        return [entry for entry in path.iterdir() if entry.is_dir()]
    except OSError as error:
        raise NotADataDirectoryError(f"{path} cannot be read: {error.strerror}") from error


def _partition_at(path: Path) -> PartitionDirectory | None:
    match = _PARTITION.fullmatch(path.name)
    return PartitionDirectory(match[1], int(match[2]), path) if match else None


def find_segment_ranges(
    replica: str, part: PartitionDirectory, bytes_max: int
) -> list[SegmentRange]:
    """Finds the partition's segments, cut into ranges of about `bytes_max` where an index has entries."""
    found = []
    for segment in list_segments(part):
        with suppress(FileNotFoundError):  # deleted by retention after it was listed
            found += _cut(_whole(replica, part, segment), bytes_max)
    return found


def list_segments(part: PartitionDirectory) -> list[Path]:
    """Lists the partition's segment files, by offset."""
    return sorted(path for path in part.path.iterdir() if _SEGMENT.fullmatch(path.name))


def _whole(replica: str, part: PartitionDirectory, segment: Path) -> SegmentRange:
    return SegmentRange(
        replica=replica,
        topic=part.topic,
        partition=part.partition,
        path=str(segment),
        file=f"{part.path.name}/{segment.name}",
        position=0,
        end=None,
        bytes_planned=segment.stat().st_size,
        segment_offset=int(segment.stem),
    )


def _cut(whole: SegmentRange, bytes_max: int) -> list[SegmentRange]:
    """Cuts a segment at positions of its `.index` at which a batch does begin."""
    size = whole.bytes_planned
    starts = [0]
    if size > bytes_max:
        starts += _starts_in(whole, _read_index(Path(whole.path).with_suffix(".index")), bytes_max)
    return [
        whole._replace(position=start, end=end, bytes_planned=(end or size) - start)
        for start, end in zip(starts, [*starts[1:], None], strict=True)
    ]


def _starts_in(whole: SegmentRange, index: Index, bytes_max: int) -> Iterator[int]:
    """Yields starts of batches at least `bytes_max` apart, up to an entry without a batch."""
    positions = index["position"]
    start = 0
    with Path(whole.path).open("rb") as log:
        while (at := bisect_left(positions, start + bytes_max)) < len(index):
            entry = index[at]
            start = int(entry["position"])
            log.seek(start)
            header = log.read(HEADER_SIZE)
            last_offset = whole.segment_offset + int(entry["relative_offset"])
            if len(header) < HEADER_SIZE or read_header(header).last_offset != last_offset:
                return
            yield start


def _read_index(path: Path) -> Index:
    """Maps the entries of an index into memory; none if it is absent or broken.

    Kafka preallocates the index of the newest segment: zeros follow its entries.
    """
    try:
        entries = np.memmap(path, _INDEX_ENTRY, "r", shape=(path.stat().st_size // 8,))
    except (OSError, ValueError):
        return np.empty(0, _INDEX_ENTRY)
    return entries[: bisect_left(entries["position"], True, key=lambda position: position == 0)]


def is_read(topic: str, only: str | None, *, with_internal: bool) -> bool:
    """Whether an audit reads a topic: the one named, or else all but internal ones, unless these are wanted, too."""
    return topic == only if only else with_internal or topic not in INTERNAL_TOPICS


def has_checked_offsets(directory: Path, name: str) -> bool:
    """Whether a checkpoint is Echoless's own: with a checksum, and without partitions that were deleted."""
    try:
        return (directory / name).read_text(encoding="utf-8").startswith("1\n")
    except (OSError, ValueError):
        return False


def is_of_echoless(part: PartitionDirectory) -> bool:
    """Whether Echoless has created a log, and no Kafka broker: its `partition.metadata` has a checksum."""
    try:
        return b"\ncrc32c: " in (part.path / PARTITION_METADATA).read_bytes()
    except OSError:
        return False


def read_offsets(directory: Path, name: str) -> dict[TopicPartition, int]:
    """Reads the offsets of a checkpoint; none if the file is absent or invalid."""
    try:
        version, _, *lines = (directory / name).read_text(encoding="utf-8").splitlines()
        if version != "0":  # Kafka's; ours ends with a checksum
            lines.pop()
        parts = [line.rsplit(" ", 2) for line in lines]
        return {
            TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in parts
        }
    except (OSError, ValueError):
        return {}
