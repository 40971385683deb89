"""The topic settings that a produced batch, and its acknowledgement, must comply with."""

from __future__ import annotations

from dataclasses import dataclass

from echoless.broker.config.names import TimestampType
from echoless.broker.config.stored import CompressionType
from echoless.broker.config.topic import TopicConfig
from echoless.broker.config.values import INT64_MAX
from echoless.protocol.batch_validation import ANY_TIMESTAMP, TimestampRules
from echoless.protocol.compression import Compression
from echoless.protocol.record_batch import Codec


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ProduceRules:
    """Requirements of a topic on a batch and on its replicas."""

    bytes_max: int
    min_insync_replicas: int
    timestamps: TimestampRules
    needs_keys: bool = False
    """Whether the topic is compacted, so that a record without a key could not stay."""
    may_be_deleted: bool = True
    """Whether DeleteRecords applies: not to a topic that is only compacted."""
    codec: Compression | None = None
    """The compression that batches are stored with; None: as they were sent."""
    flush_messages: int | None = None
    """After so many records the log is flushed; 1: before each acknowledgement. None: by `log_flush` alone."""
    flush_ms: int | None = None
    """The log is flushed so long after an append at the latest."""
    is_internal: bool = False
    """Whether only this broker's own coordinators may append."""
    unserved: str | None = None
    """Why this broker may not lead: a setting of the topic that it cannot read."""

    @property
    def flushes_early(self) -> bool:
        """Whether the topic asks for flushes of its own."""
        return self.flush_messages is not None or self.flush_ms is not None

    @classmethod
    def of(
        cls, topic: TopicConfig, *, is_internal: bool = False, unserved: str | None = None
    ) -> ProduceRules:
        """The rules that the settings of a topic make."""
        timestamps = TimestampRules(
            log_append_time=topic.message_timestamp_type is TimestampType.LOG_APPEND_TIME,
            before_max_ms=topic.message_timestamp_before_max_ms,
            after_max_ms=topic.message_timestamp_after_max_ms,
        )
        return cls(
            bytes_max=topic.max_message_bytes,
            min_insync_replicas=topic.min_insync_replicas,
            is_internal=is_internal,
            unserved=unserved,
            needs_keys=topic.is_compacted,
            may_be_deleted=topic.is_deleted,
            codec=_compression_of(topic),
            flush_messages=_unless_never(topic.flush_messages),
            flush_ms=_unless_never(topic.flush_ms),
            # The shared object tells the batch check that there is nothing to compare.
            timestamps=ANY_TIMESTAMP if timestamps == ANY_TIMESTAMP else timestamps,
        )


def _compression_of(topic: TopicConfig) -> Compression | None:
    match topic.compression_type:
        case CompressionType.PRODUCER:
            return None
        case CompressionType.UNCOMPRESSED:
            return Compression(Codec.NONE)
        case CompressionType.GZIP:
            return Compression(Codec.GZIP, topic.compression_gzip_level)
        case CompressionType.SNAPPY:
            return Compression(Codec.SNAPPY)
        case CompressionType.LZ4:
            return Compression(Codec.LZ4, topic.compression_lz4_level)
        case CompressionType.ZSTD:
            return Compression(Codec.ZSTD, topic.compression_zstd_level)


def _unless_never(limit: int) -> int | None:
    return None if limit == INT64_MAX else limit
