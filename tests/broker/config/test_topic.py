"""A topic's overrides, as its logs and DescribeConfigs see them."""

from __future__ import annotations

import pytest

from echoless.broker.config.description import (
    Alteration,
    AlterOperation,
    ConfigEntry,
    ConfigSource,
    Synonym,
    altered,
    describe_broker,
    describe_topic,
)
from echoless.broker.config.dynamic import DynamicConfig
from echoless.broker.config.loading import load_config
from echoless.broker.config.names import Config, TimestampType
from echoless.broker.config.topic import TopicConfig, to_log_config, topic_settings, validated
from echoless.broker.config.values import ConfigType
from echoless.protocol.dedup import UnknownProducerId
from echoless.protocol.errors import ErrorCode, KafkaError

_KAFKA_TYPES = {
    "cleanup.policy": ConfigType.LIST,
    "compression.gzip.level": ConfigType.INT,
    "compression.lz4.level": ConfigType.INT,
    "compression.type": ConfigType.STRING,
    "compression.zstd.level": ConfigType.INT,
    "delete.retention.ms": ConfigType.LONG,
    "file.delete.delay.ms": ConfigType.LONG,
    "flush.messages": ConfigType.LONG,
    "flush.ms": ConfigType.LONG,
    "follower.replication.throttled.replicas": ConfigType.LIST,
    "leader.replication.throttled.replicas": ConfigType.LIST,
    "local.retention.bytes": ConfigType.LONG,
    "local.retention.ms": ConfigType.LONG,
    "max.compaction.lag.ms": ConfigType.LONG,
    "message.downconversion.enable": ConfigType.BOOLEAN,
    "message.format.version": ConfigType.STRING,
    "message.timestamp.difference.max.ms": ConfigType.LONG,
    "min.cleanable.dirty.ratio": ConfigType.DOUBLE,
    "min.compaction.lag.ms": ConfigType.LONG,
    "preallocate": ConfigType.BOOLEAN,
    "remote.storage.enable": ConfigType.BOOLEAN,
    "segment.index.bytes": ConfigType.INT,
    "segment.jitter.ms": ConfigType.LONG,
    "index.interval.bytes": ConfigType.INT,
    "max.message.bytes": ConfigType.INT,
    "message.timestamp.after.max.ms": ConfigType.LONG,
    "message.timestamp.before.max.ms": ConfigType.LONG,
    "message.timestamp.type": ConfigType.STRING,
    "min.insync.replicas": ConfigType.INT,
    "retention.bytes": ConfigType.LONG,
    "retention.ms": ConfigType.LONG,
    "segment.bytes": ConfigType.INT,
    "segment.ms": ConfigType.LONG,
    "unclean.leader.election.enable": ConfigType.BOOLEAN,
}


def test_topic_without_overrides_follows_the_broker() -> None:
    """A setting without an override comes from the broker's configuration."""
    config = load_config(["--set", "log_segment_bytes=1MiB", "--set", "min_insync_replicas=2"], {})
    topic = TopicConfig.of(config, {})
    assert (topic.segment_bytes, topic.min_insync_replicas) == (2**20, 2)
    assert topic.max_message_bytes == config.message_max_bytes


def test_override_hides_the_broker() -> None:
    """An override takes precedence over the broker's configuration."""
    topic = TopicConfig.of(Config(), {"message.timestamp.type": "LogAppendTime", "segment.ms": "5"})
    assert topic.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert topic.segment_ms == 5


def test_logs_get_their_part_of_both() -> None:
    """A log's configuration is made of the topic's names and of the broker's producer limits."""
    config = load_config(
        ["--set", "producers_per_partition_max=7", "--set", "unknown_producer_id=accept"], {}
    )
    log_config = to_log_config(
        config,
        "t",
        {"producer.state.batches.to.retain": "9", "message.timestamp.type": "LogAppendTime"},
    )
    assert (log_config.window, log_config.log_append_time) == (9, True)
    assert log_config.producers_max == 7
    assert log_config.unknown_producer_id is UnknownProducerId.ACCEPT
    assert log_config.segment_bytes == config.log_segment_bytes


def test_stored_values_are_plain() -> None:
    """Units and capitals are resolved before a value is stored, so that every client can read it."""
    overrides = {"segment.bytes": "64KiB", "unclean.leader.election.enable": "TRUE"}
    stored = validated(overrides | {"message.timestamp.type": "logappendtime"})
    assert stored == {
        "segment.bytes": "65536",
        "unclean.leader.election.enable": "true",
        "message.timestamp.type": "LogAppendTime",
    }


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "segment.bytes",
            "13",
            "segment.bytes takes bytes (1048576, or 1MiB), at least 14, not '13'",
        ),
        ("segment.bytes", None, "segment.bytes: a null value sets nothing"),
        ("cleanup.policy", "shred", "cleanup.policy takes delete or compact, or several of them"),
        ("cleanup.policy", "", "cleanup.policy takes delete or compact, or several of them"),
        ("compression.type", "brotli", "compression.type takes producer or uncompressed or gzip"),
        ("compression.zstd.level", "23", "compression.zstd.level takes an integer from -131072"),
        (
            "min.cleanable.dirty.ratio",
            "1.1",
            "min.cleanable.dirty.ratio takes a number from 0 to 1",
        ),
        ("remote.storage.enable", "true", "remote.storage.enable takes false only (there is no"),
        ("no.such", "1", "Unknown topic config name: no.such"),
    ],
)
def test_wrong_override_is_invalid_config_with_the_reason(
    name: str, value: str | None, message: str
) -> None:
    """A name or value that cannot be used is INVALID_CONFIG, and the message says why."""
    with pytest.raises(KafkaError) as caught:
        validated({name: value})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert caught.value.message.startswith(message)


def test_types_are_those_of_kafka() -> None:
    """DescribeConfigs gives each of Kafka's names the type that Kafka gives it."""
    for name, config_type in _KAFKA_TYPES.items():
        assert topic_settings()[name].kind.type is config_type, name


def test_description_has_the_deciding_value_first() -> None:
    """Synonyms run from the deciding name back to the default, as Kafka lists them."""
    config = load_config(["--set", "log_segment_bytes=1000"], {})
    entry = _entry(
        describe_topic(DynamicConfig(config), {"segment.bytes": "2000"}), "segment.bytes"
    )
    assert (entry.value, entry.source, entry.is_default) == ("2000", ConfigSource.TOPIC, False)
    assert entry.synonyms == [
        Synonym("segment.bytes", "2000", ConfigSource.TOPIC),
        Synonym("log.segment.bytes", "1000", ConfigSource.STATIC_BROKER),
        Synonym("log.segment.bytes", "134217728", ConfigSource.DEFAULT),
    ]


def test_description_of_what_nobody_set_is_the_default() -> None:
    """A value that neither topic nor broker sets is described as a default."""
    entries = describe_topic(DynamicConfig(Config()), {})
    assert all(entry.is_default and not entry.is_read_only and entry.doc for entry in entries)
    assert _entry(entries, "cleanup.policy").value == "delete"
    assert _entry(entries, "unclean.leader.election.enable").value == "false"


def test_broker_is_described_under_dotted_names() -> None:
    """A broker's entries carry Kafka's spelling."""
    entries = describe_broker(DynamicConfig(load_config(["--broker-id", "3"], {})), {})
    entry = _entry(entries, "broker.id")
    assert (entry.value, entry.source, entry.type) == (
        "3",
        ConfigSource.STATIC_BROKER,
        ConfigType.INT,
    )
    assert entry.is_read_only


def test_alterations_set_and_delete() -> None:
    """SET replaces or adds one override and DELETE returns to the broker's value."""
    changes = [
        Alteration("segment.ms", AlterOperation.SET, "1s"),
        Alteration("retention.ms", AlterOperation.DELETE, None),
    ]
    before = {"retention.ms": "5", "segment.bytes": "100"}
    assert altered(before, changes) == {"segment.bytes": "100", "segment.ms": "1000"}
    assert before == {"retention.ms": "5", "segment.bytes": "100"}


def test_append_and_subtract_are_for_lists() -> None:
    """APPEND and SUBTRACT change lists, and are INVALID_CONFIG on anything else."""
    append = Alteration("cleanup.policy", AlterOperation.APPEND, "delete")
    assert altered({}, [append]) == {"cleanup.policy": "delete"}
    also_compact = Alteration("cleanup.policy", AlterOperation.APPEND, "compact")
    assert altered({}, [also_compact]) == {"cleanup.policy": "delete,compact"}
    for name, value in (("segment.ms", "1"), ("cleanup.policy", "shred")):
        with pytest.raises(KafkaError) as caught:
            altered({}, [Alteration(name, AlterOperation.APPEND, value)])
        assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_one_name_altered_twice_is_an_invalid_request() -> None:
    """Two changes of one name leave open which is meant, so neither is made."""
    change = Alteration("segment.ms", AlterOperation.SET, "1")
    with pytest.raises(KafkaError) as caught:
        altered({}, [change, change])
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def _entry(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    return next(entry for entry in entries if entry.name == name)
