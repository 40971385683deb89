"""Topic overrides: settings of one topic, by Kafka's dotted names (`segment.bytes`, `retention.ms`).

A topic stores only what was set; `TopicConfig.of` applies that on top of the broker's configuration.
Each field of `TopicConfig` is one name (`segment_bytes` is `segment.bytes`) and takes its kind, and if
nothing is set its value, from the broker's name that it overrides.

Every name of Kafka 3.9 is accepted, since applications create their topics with them. Those that mean nothing
here are stored and described, and their description says so (`broker/config/without_effect.py`).
`broker/config/description.py` turns all this into DescribeConfigs answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from echoless.broker.config.internal_topics import in_force
from echoless.broker.config.names import Config, ProducerIdBinding, TimestampType, settings
from echoless.broker.config.stored import COMPACT, DELETE, CompressionType
from echoless.broker.config.values import INT64_MAX, ValueKind, canonical
from echoless.broker.config.without_effect import TIMESTAMP_DIFFERENCE, WITHOUT_EFFECT
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.leases import lease_retention_ms
from echoless.storage.compaction.plan import CompactionRules
from echoless.storage.log_config import LogConfig


class TopicSetting(NamedTuple):
    """The metadata of one topic-level name."""

    name: str
    kind: ValueKind[Any]
    doc: str
    broker_name: str | None
    """The name in `Config` that gives the value if the topic sets none."""
    default: Any
    """The value if no broker name provides one."""


def _overriding(broker_name: str) -> Any:
    return field(metadata={"broker_name": broker_name})


@dataclass(slots=True, kw_only=True, eq=False)
class TopicConfig:
    """The values in force for one topic. Sizes are bytes, times milliseconds."""

    cleanup_policy: tuple[str, ...] = _overriding("log_cleanup_policy")
    compression_gzip_level: int = _overriding("compression_gzip_level")
    compression_lz4_level: int = _overriding("compression_lz4_level")
    compression_type: CompressionType = _overriding("compression_type")
    compression_zstd_level: int = _overriding("compression_zstd_level")
    delete_retention_ms: int = _overriding("log_cleaner_delete_retention_ms")
    flush_messages: int = _overriding("log_flush_interval_messages")
    flush_ms: int = _overriding("log_flush_interval_ms")
    index_interval_bytes: int = _overriding("log_index_interval_bytes")
    max_compaction_lag_ms: int = _overriding("log_cleaner_max_compaction_lag_ms")
    max_message_bytes: int = _overriding("message_max_bytes")
    message_timestamp_after_max_ms: int = _overriding("log_message_timestamp_after_max_ms")
    message_timestamp_before_max_ms: int = _overriding("log_message_timestamp_before_max_ms")
    message_timestamp_type: TimestampType = _overriding("log_message_timestamp_type")
    min_cleanable_dirty_ratio: float = _overriding("log_cleaner_min_cleanable_ratio")
    min_compaction_lag_ms: int = _overriding("log_cleaner_min_compaction_lag_ms")
    min_insync_replicas: int = _overriding("min_insync_replicas")
    producer_state_batches_to_retain: int = _overriding("producer_state_batches_to_retain")
    retention_bytes: int = _overriding("log_retention_bytes")
    retention_ms: int = _overriding("log_retention_ms")
    segment_bytes: int = _overriding("log_segment_bytes")
    segment_ms: int = _overriding("log_roll_ms")
    unclean_leader_election_enable: bool = _overriding("unclean_leader_election_enable")

    @classmethod
    def of(cls, config: Config, overrides: Mapping[str, str]) -> TopicConfig:
        """The configuration in force for a topic that sets `overrides` on a broker with `config`.

        Raises `KafkaError` INVALID_CONFIG as `validated` does.
        """
        values = {
            setting.name.replace(".", "_"): getattr(config, setting.broker_name)
            for setting in topic_settings().values()
            if setting.broker_name is not None
        }
        difference = overrides.get(TIMESTAMP_DIFFERENCE)
        if difference is not None:  # the older name of two
            both = _read(TIMESTAMP_DIFFERENCE, difference)
            values["message_timestamp_before_max_ms"] = both
            values["message_timestamp_after_max_ms"] = both
        for name, text in overrides.items():
            if name not in WITHOUT_EFFECT:
                values[name.replace(".", "_")] = _read(name, text)
        return cls(**values)

    @property
    def is_compacted(self) -> bool:
        """Whether of each key only the newest record is kept."""
        return COMPACT in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether records go when they are old, or when there are too many."""
        return DELETE in self.cleanup_policy


_KEEPS_EVERYTHING: Final = {
    "cleanup.policy": DELETE,
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
"""The settings of a topic of which not all can be read: nothing is deleted by a rule that is not known."""


class TopicInForce(NamedTuple):
    """The settings of a topic as this broker can apply them."""

    config: TopicConfig
    unreadable: str | None
    """The first stored setting that this broker cannot read, and why; None: it reads all."""


def topic_in_force(config: Config, name: str, overrides: Mapping[str, str]) -> TopicInForce:
    """The settings of a topic, of which some may be unknown to this broker: a newer one has stored them.

    What can be read is applied then, except that nothing is deleted and nothing compacted.
    """
    stored = in_force(name, overrides)
    try:
        return TopicInForce(TopicConfig.of(config, stored), None)
    except KafkaError as error:
        readable = {name: text for name, text in stored.items() if _is_readable(name, text)}
        return TopicInForce(TopicConfig.of(config, {**readable, **_KEEPS_EVERYTHING}), str(error))


def _is_readable(name: str, text: str) -> bool:
    try:
        _read(name, text)
    except KafkaError:
        return False
    return True


def _topic_settings() -> dict[str, TopicSetting]:
    of_broker = settings()
    found = {}
    for f in fields(TopicConfig):
        name, broker_name = f.name.replace("_", "."), f.metadata["broker_name"]
        behind = of_broker[broker_name]
        found[name] = TopicSetting(name, behind.kind, behind.doc, broker_name, behind.default)
    for name, ignored in WITHOUT_EFFECT.items():
        found[name] = TopicSetting(name, ignored.kind, ignored.reason, None, ignored.default)
    return dict(sorted(found.items()))


_TOPIC_SETTINGS: Final = _topic_settings()


def topic_settings() -> Mapping[str, TopicSetting]:
    """Every topic-level name, in alphabetical order."""
    return _TOPIC_SETTINGS


def validated(overrides: Mapping[str, str | None]) -> dict[str, str]:
    """The overrides in stored form: plain numbers, no units, no surrounding blanks.

    Raises `KafkaError` INVALID_CONFIG for an unknown name or an invalid value.
    """
    return {name: canonical(_read(name, text)) for name, text in overrides.items()}


_LAGS: Final = frozenset({"min.compaction.lag.ms", "max.compaction.lag.ms"})


def check_in_force(config: Config, overrides: Mapping[str, str]) -> None:
    """Raises `KafkaError` INVALID_CONFIG if `overrides` contradict each other, or the broker's own values."""
    if _LAGS.isdisjoint(overrides):
        return
    topic = TopicConfig.of(config, overrides)
    if topic.min_compaction_lag_ms > topic.max_compaction_lag_ms:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({topic.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({topic.max_compaction_lag_ms})",
        )


def to_log_config(config: Config, name: str, overrides: Mapping[str, str]) -> LogConfig:
    """The configuration for the logs of a topic, from the broker's configuration and the topic's own."""
    topic = topic_in_force(config, name, overrides).config
    return LogConfig(
        segment_bytes=topic.segment_bytes,
        roll_ms=_roll_ms(topic),
        retention_ms=topic.retention_ms if topic.is_deleted else -1,
        retention_bytes=topic.retention_bytes if topic.is_deleted else -1,
        index_interval_bytes=topic.index_interval_bytes,
        log_append_time=topic.message_timestamp_type is TimestampType.LOG_APPEND_TIME,
        window=topic.producer_state_batches_to_retain,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        leased_producer_expiration_ms=lease_retention_ms(config.producer_lease_ms),
        producers_max=config.producers_per_partition_max,
        producers_fair=config.producer_id_binding is ProducerIdBinding.PRINCIPAL,
        unknown_producer_id=config.unknown_producer_id,
        forgotten_producers_max=config.forgotten_producers_per_partition_max,
        is_compacted=topic.is_compacted,
        compaction_rules=CompactionRules(
            min_dirty_ratio=topic.min_cleanable_dirty_ratio,
            min_lag_ms=topic.min_compaction_lag_ms,
            max_lag_ms=None
            if topic.max_compaction_lag_ms == INT64_MAX
            else topic.max_compaction_lag_ms,
            delete_retention_ms=topic.delete_retention_ms,
        ),
    )


def _roll_ms(topic: TopicConfig) -> int:
    """When a segment is closed: only then can compaction reach it."""
    if topic.is_compacted:
        return min(topic.segment_ms, topic.max_compaction_lag_ms)
    return topic.segment_ms


def _read(name: str, text: str | None) -> Any:
    setting = topic_settings().get(name)
    if setting is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    if text is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}: a null value sets nothing")
    try:
        return setting.kind.read(text)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} {error}") from error
