"""The configuration names for stored records: compaction, compression and flushes.

`broker/config/names.py` adds all others.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from echoless.broker.config.groups import GroupConfig
from echoless.broker.config.setting import setting
from echoless.broker.config.values import (
    INT32_MAX,
    INT64_MAX,
    choice,
    duration,
    fraction,
    integer,
    set_of,
    size,
)


class CompressionType(enum.StrEnum):
    """The codec of stored batches: the producer's own, or one for all."""

    PRODUCER = "producer"
    UNCOMPRESSED = "uncompressed"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


DELETE = "delete"
COMPACT = "compact"


@dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False)
class StoredConfig(GroupConfig):
    """Compaction, compression and flushes."""

    log_cleanup_policy: tuple[str, ...] = setting(
        (DELETE,),
        set_of(DELETE, COMPACT),
        "delete: old segments go; compact: of each key the newest record stays; or both",
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        0.5,
        fraction(),
        "a compacted log is cleaned once more than this part of it was not cleaned yet",
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        0, duration(0), "younger records of compacted topics stay as they are"
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        INT64_MAX, duration(1), "older records of compacted topics are cleaned, whatever the ratio"
    )
    log_cleaner_delete_retention_ms: int = setting(
        86_400_000, duration(0), "how long compaction keeps a tombstone that it has met"
    )
    log_cleaner_backoff_ms: int = setting(
        15_000, duration(1, INT32_MAX), "how often compaction looks for logs to clean"
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        64 * 1024 * 1024,
        size(1024, INT32_MAX),
        "memory for the keys of one pass of compaction, 192 bytes each; a full one ends the pass",
    )
    log_cleaner_io_max_bytes_per_second: int = setting(
        INT64_MAX, size(1024), "compaction reads and writes no faster than this"
    )
    compression_type: CompressionType = setting(
        CompressionType.PRODUCER,
        choice(CompressionType),
        "how batches are stored: as they were sent, or compressed anew by this codec",
    )
    compression_gzip_level: int = setting(
        -1, integer(-1, 9), "level of compression_type=gzip; -1: the codec's own"
    )
    compression_lz4_level: int = setting(9, integer(1, 17), "the same for lz4")
    compression_zstd_level: int = setting(3, integer(-131_072, 22), "the same for zstd")
    log_flush_interval_messages: int = setting(
        INT64_MAX,
        integer(1, INT64_MAX),
        "with log_flush=os: a partition is flushed after so many records",
    )
    log_flush_interval_ms: int = setting(
        INT64_MAX,
        duration(0),
        "with log_flush=os: a partition is flushed so long after an append at the latest",
    )
