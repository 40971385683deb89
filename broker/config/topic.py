"""Topic overrides: settings of one topic, by Kafka's dotted names (`segment.bytes`, `retention.ms`).

A topic stores only what was set; `TopicConfig.of` applies that on top of the broker's configuration.
Each field of `TopicConfig` is one name (`segment_bytes` is `segment.bytes`) and takes its kind, and if
nothing is set its value, from the broker's name that it overrides.

Kafka names that mean nothing here are refused with a reason rather than accepted without effect.
`broker/config/description.py` turns all this into DescribeConfigs answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, Final

from broker.config.internal_topics import in_force
from broker.config.names import Config, ProducerIdBinding, TimestampType, settings
from broker.config.values import ConfigType, Kind, canonical, only
from protocol.errors import ErrorCode, KafkaError
from protocol.lean_dataclass import dataclass
from protocol.lean_named_tuple import NamedTuple
from protocol.leases import lease_retention_ms
from storage.log_config import LogConfig

_WITHOUT_EFFECT: Final = {
    "delete.retention.ms": "there is no compaction",
    "file.delete.delay.ms": (
        "set the broker's log_segment_delete_delay_ms; segments that retention deletes go at once"
    ),
    "flush.messages": "the broker's log_flush=commit flushes before each acknowledgement",
    "flush.ms": "the broker's log_flush=commit flushes before each acknowledgement",
    "follower.replication.throttled.replicas": "replication is not throttled",
    "leader.replication.throttled.replicas": "replication is not throttled",
    "local.retention.bytes": "there is no tiered storage",
    "local.retention.ms": "there is no tiered storage",
    "max.compaction.lag.ms": "there is no compaction",
    "message.downconversion.enable": "only record batches of magic 2 are stored",
    "message.format.version": "only record batches of magic 2 are stored",
    "message.timestamp.difference.max.ms": (
        "set message.timestamp.before.max.ms and message.timestamp.after.max.ms"
    ),
    "min.cleanable.dirty.ratio": "there is no compaction",
    "min.compaction.lag.ms": "there is no compaction",
    "preallocate": "files grow as they are written",
    "remote.storage.enable": "there is no tiered storage",
    "segment.index.bytes": "indexes grow as they are written",
    "segment.jitter.ms": "segments are closed at segment.ms exactly",
}
"""Topic names of Kafka 3.9 that Echoless refuses, and why."""


class TopicSetting(NamedTuple):
    """The metadata of one topic-level name."""

    name: str
    kind: Kind[Any]
    doc: str
    broker_name: str | None
    """The name in `Config` that gives the value if the topic sets none."""
    default: Any
    """The value if no broker name provides one."""


def _overriding(broker_name: str) -> Any:
    return field(metadata={"broker_name": broker_name})


def _fixed(value: str, kind: Kind[str], doc: str) -> Any:
    return field(default=value, metadata={"kind": kind, "doc": doc})


@dataclass(slots=True, frozen=True, kw_only=True)
class TopicConfig:
    """The values in force for one topic. Sizes are bytes, times milliseconds."""

    cleanup_policy: str = _fixed(
        "delete",
        only("delete", "there is no compaction", ConfigType.LIST),
        "what happens to old segments",
    )
    compression_type: str = _fixed(
        "producer",
        only("producer", "batches are stored as they were sent"),
        "compression of stored batches",
    )
    index_interval_bytes: int = _overriding("log_index_interval_bytes")
    max_message_bytes: int = _overriding("message_max_bytes")
    message_timestamp_after_max_ms: int = _overriding("log_message_timestamp_after_max_ms")
    message_timestamp_before_max_ms: int = _overriding("log_message_timestamp_before_max_ms")
    message_timestamp_type: TimestampType = _overriding("log_message_timestamp_type")
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
        for name, text in overrides.items():
            values[name.replace(".", "_")] = _read(name, text)
        return cls(**values)


def _topic_settings() -> dict[str, TopicSetting]:
    of_broker = settings()
    found = {}
    for f in fields(TopicConfig):
        name = f.name.replace("_", ".")
        broker_name = f.metadata.get("broker_name")
        if broker_name is None:
            found[name] = TopicSetting(name, f.metadata["kind"], f.metadata["doc"], None, f.default)
        else:
            behind = of_broker[broker_name]
            found[name] = TopicSetting(name, behind.kind, behind.doc, broker_name, behind.default)
    return found


_TOPIC_SETTINGS: Final = _topic_settings()


def topic_settings() -> Mapping[str, TopicSetting]:
    """Every topic-level name, in alphabetical order."""
    return _TOPIC_SETTINGS


def validated(overrides: Mapping[str, str | None]) -> dict[str, str]:
    """The overrides in stored form: plain numbers, no units, no surrounding blanks.

    Raises `KafkaError` INVALID_CONFIG for an unknown name or an invalid value.
    """
    return {name: canonical(_read(name, text)) for name, text in overrides.items()}


def to_log_config(config: Config, name: str, overrides: Mapping[str, str]) -> LogConfig:
    """The configuration for the logs of a topic, from the broker's configuration and the topic's own."""
    topic = TopicConfig.of(config, in_force(name, overrides))
    return LogConfig(
        segment_bytes=topic.segment_bytes,
        roll_ms=topic.segment_ms,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        log_append_time=topic.message_timestamp_type is TimestampType.LOG_APPEND_TIME,
        window=topic.producer_state_batches_to_retain,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        leased_producer_expiration_ms=lease_retention_ms(config.producer_lease_ms),
        producers_max=config.producers_per_partition_max,
        producers_fair=config.producer_id_binding is ProducerIdBinding.PRINCIPAL,
        unknown_producer_id=config.unknown_producer_id,
    )


def _read(name: str, text: str | None) -> Any:
    setting = topic_settings().get(name)
    if setting is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, _refusal(name))
    if text is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}: a null value sets nothing")
    try:
        return setting.kind.read(text)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} {error}") from error


def _refusal(name: str) -> str:
    if name in _WITHOUT_EFFECT:
        return f"{name} has no effect in Echoless: {_WITHOUT_EFFECT[name]}"
    return f"Unknown topic config name: {name}"
