"""Names of files and directories under `data_dir`. Nothing else builds or parses them.

    data_dir/
        .lock  .clean-shutdown  .boot-id  meta.properties
        recovery-point-offset-checkpoint  replication-offset-checkpoint
        log-start-offset-checkpoint  cleaner-offset-checkpoint
        clock-checkpoint  producer-id-checkpoint
        <topic>-<partition>/
            partition.metadata  leader-epoch-checkpoint
            00000000000000000000.log  .index  .timeindex  .txnindex   (20 digits: the segment's base offset)
            00000000000000000042.snapshot                   (producer state of all offsets < 42)
            replacement.snapshot                            (of the log that will replace this one)
            00000000000000000000.log.cleaned  .log.swap     (compaction's; `compaction/swap.py`)
            00000000000000000000.4711.log.cleaned           (by a process of its own, with its id)
        <topic>-<partition>.<32 hex digits>-delete/         (being deleted)
        <topic>-<partition>.<time>-<32 hex digits>-stray/   (set aside; `strays.py`)

The names are Kafka's, except for the last two checkpoints. Pure strings: touches no file.
"""

from __future__ import annotations

import datetime
import re
from typing import Final, NamedTuple

LOCK: Final = ".lock"
CLEAN_SHUTDOWN: Final = ".clean-shutdown"
BOOT_ID: Final = ".boot-id"
META_PROPERTIES: Final = "meta.properties"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
CLOCK_CHECKPOINT: Final = "clock-checkpoint"
PRODUCER_ID_CHECKPOINT: Final = "producer-id-checkpoint"
REPLACEMENT: Final = "replacement.snapshot"
STRAY_PROPERTIES: Final = "stray.properties"
ACCEPTED_LOSS: Final = "accepted-loss"

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SPARSE_INDEXES: Final = (OFFSET_INDEX, TIME_INDEX)
"""The indexes that a segment's batches suffice to make again."""
SEGMENT_INDEXES: Final = (*SPARSE_INDEXES, TRANSACTION_INDEX)
"""Everything that goes with the `.log` of its name."""
SNAPSHOT: Final = ".snapshot"
CLEANED: Final = ".log.cleaned"
SWAP: Final = ".log.swap"

# Text: each is compiled with its first use, and a start on a new directory uses none.
_OFFSET_FILE: Final = r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)"
_SWAP_FILE: Final = r"(\d{20})\.log\.swap"
_PARTITION: Final = r"([a-zA-Z0-9._-]+)-(0|[1-9]\d*)"
_DELETED: Final = r".+-\d+\.[0-9a-f]{32}-delete"
_STRAY: Final = r".+-\d+\.\d{8}T\d{9}Z-[0-9a-f]{32}-stray"
_TOPIC_IN_DELETED_MAX: Final = 200
"""A file name has 255 bytes at most; the suffix of a deleted directory takes 40 and the number."""
_TOPIC_IN_STRAY_MAX: Final = 185
"""The suffix of a directory set aside takes 59; the whole topic name is in `stray.properties`."""


class OffsetFile(NamedTuple):
    """A file named by an offset, such as `(42, ".log")`."""

    offset: int
    suffix: str


def join(directory: str, name: str) -> str:
    """The path of `name` in `directory`."""
    return f"{directory}/{name}"


def name_of(path: str) -> str:
    """The last component of a path."""
    return path.rstrip("/").rpartition("/")[2]


def parent_of(path: str) -> str:
    """The directory that holds `path`."""
    head, separator, _ = path.rstrip("/").rpartition("/")
    return head or separator or "."


def offset_file(directory: str, offset: int, suffix: str) -> str:
    """The path of a file named by an offset, such as `.../00000000000000000042.log`."""
    return f"{directory}/{offset:020d}{suffix}"


def parse_offset_file(name: str) -> OffsetFile | None:
    """The parts of a 20-digit name, None for any other name."""
    match = re.fullmatch(_OFFSET_FILE, name)
    return OffsetFile(int(match[1]), match[2]) if match else None


def parse_swap_file(name: str) -> int | None:
    """The base offset of a compacted segment that is to be put in place, None for any other name."""
    match = re.fullmatch(_SWAP_FILE, name)
    return int(match[1]) if match else None


def is_of_compaction(name: str) -> bool:
    """Whether the file is one that compaction writes and renames."""
    return name.endswith((CLEANED, SWAP))


def partition_directory(data_dir: str, topic: str, partition: int) -> str:
    """The directory of one partition's files."""
    return f"{data_dir}/{topic}-{partition}"


def parse_partition_directory(name: str) -> tuple[str, int] | None:
    """`(topic, partition)`; None for a name that is not `<topic>-<partition>`."""
    match = re.fullmatch(_PARTITION, name)
    return (match[1], int(match[2])) if match else None


def deleted_directory(data_dir: str, topic: str, partition: int, unique: str) -> str:
    """The name a partition gets before its files are removed; `unique` is 32 hex digits."""
    return f"{data_dir}/{topic[:_TOPIC_IN_DELETED_MAX]}-{partition}.{unique}-delete"


def stray_directory(data_dir: str, topic: str, partition: int, now_ms: int, unique: str) -> str:
    """The name a partition gets when it is set aside; `unique` is 32 hex digits."""
    moment = datetime.datetime.fromtimestamp(now_ms // 1000, tz=datetime.UTC)
    time = f"{moment:%Y%m%dT%H%M%S}{now_ms % 1000:03d}Z"
    return f"{data_dir}/{topic[:_TOPIC_IN_STRAY_MAX]}-{partition}.{time}-{unique}-stray"


def is_stray_directory(name: str) -> bool:
    """Whether the directory is that of a partition set aside."""
    return re.fullmatch(_STRAY, name) is not None


def is_deleted_from(name: str, topic: str, partition: int) -> bool:
    """Whether the directory `name`, which is being deleted, was that partition's."""
    unique = name[-len("-delete") - 32 : -len("-delete")]
    return name_of(deleted_directory("", topic, partition, unique)) == name


def is_deleted_directory(name: str) -> bool:
    """Whether the directory belongs to a partition whose deletion has begun."""
    return re.fullmatch(_DELETED, name) is not None
