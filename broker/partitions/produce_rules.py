"""The topic settings that a produced batch, and its acknowledgement, must comply with."""

from __future__ import annotations

from broker.config.names import TimestampType
from broker.config.topic import TopicConfig
from protocol.batch_validation import ANY_TIMESTAMP, TimestampRules
from protocol.lean_dataclass import dataclass


@dataclass(slots=True, frozen=True, kw_only=True)
class ProduceRules:
    """Requirements of a topic on a batch and on its replicas."""

    bytes_max: int
    min_insync_replicas: int
    timestamps: TimestampRules
    is_internal: bool = False
    """Whether only this broker's own coordinators may append."""

    @classmethod
    def of(cls, topic: TopicConfig, *, is_internal: bool = False) -> ProduceRules:
        timestamps = TimestampRules(
            log_append_time=topic.message_timestamp_type is TimestampType.LOG_APPEND_TIME,
            before_max_ms=topic.message_timestamp_before_max_ms,
            after_max_ms=topic.message_timestamp_after_max_ms,
        )
        return cls(
            bytes_max=topic.max_message_bytes,
            min_insync_replicas=topic.min_insync_replicas,
            is_internal=is_internal,
            # The shared object tells the batch check that there is nothing to compare.
            timestamps=ANY_TIMESTAMP if timestamps == ANY_TIMESTAMP else timestamps,
        )
