"""The settings that can change while a broker runs, and what is in force of those that were stored."""

from __future__ import annotations

import logging

import pytest

from echoless.broker.config.description import (
    ConfigSource,
    Synonym,
    describe_all_brokers,
    describe_broker,
    describe_topic,
)
from echoless.broker.config.dynamic import DYNAMIC, DynamicConfig, named, validated
from echoless.broker.config.loading import Config
from echoless.broker.config.names import settings
from echoless.protocol.errors import ErrorCode, KafkaError

RETENTION = "log.retention.ms"


def test_a_setting_has_kafkas_name_and_ours() -> None:
    """With dots or underscores, or Kafka's other name: all mean what is stored once."""
    assert named("log_retention_ms") == named(RETENTION) == RETENTION
    assert named("connections.max") == named("max.connections") == "max.connections"


@pytest.mark.parametrize(
    "name", ["broker.id", "log.dirs", "request.size.max", "listeners", "delete.topic.enable"]
)
def test_what_is_read_at_the_start_is_refused_with_the_remedy(name: str) -> None:
    """As Kafka refuses it; the message names the setting and says to restart the broker."""
    with pytest.raises(KafkaError, match=f"Cannot update .*dynamically: {name}.*restart") as caught:
        named(name)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_name_that_does_not_exist_is_refused() -> None:
    """It would be stored and do nothing."""
    with pytest.raises(KafkaError, match=r"Unknown broker config name: log\.retantion") as caught:
        named("log.retantion.ms")
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("text", ["soon", "-2", None])
def test_a_value_that_cannot_be_read_is_refused_by_name(text: str | None) -> None:
    """The message says what the setting takes."""
    with pytest.raises(KafkaError, match=RETENTION) as caught:
        validated({RETENTION: text})
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_brokers_own_value_precedes_that_for_all_and_the_one_it_was_started_with() -> None:
    """Each level shows again when the one above it is deleted."""
    config = Config(log_retention_ms=4)
    dynamic = DynamicConfig(config)
    for of_all, own, value in (
        ({RETENTION: "3"}, {RETENTION: "2"}, 2),
        ({RETENTION: "3"}, {}, 3),
        ({}, {RETENTION: "2"}, 2),
        ({}, {}, 4),
    ):
        assert dynamic.apply(of_all, own) == {"log_retention_ms"}
        assert config.log_retention_ms == value
        assert dynamic.apply(of_all, own) == frozenset()


def test_values_are_described_with_all_their_sources() -> None:
    """For the broker, for a topic that sets nothing, and for all brokers."""
    dynamic = DynamicConfig(Config(log_retention_ms=4))
    dynamic.apply({RETENTION: "3"}, {RETENTION: "2"})
    sources = [
        Synonym(RETENTION, "2", ConfigSource.DYNAMIC_BROKER),
        Synonym(RETENTION, "3", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        Synonym(RETENTION, "4", ConfigSource.STATIC_BROKER),
        Synonym(RETENTION, "604800000", ConfigSource.DEFAULT),
    ]
    of_broker = {one.name: one for one in describe_broker(dynamic, {})}
    assert of_broker[RETENTION].synonyms == sources
    assert (of_broker[RETENTION].value, of_broker[RETENTION].source) == ("2", 2)
    of_topic = {one.name: one for one in describe_topic(dynamic, {})}
    assert of_topic["retention.ms"].synonyms == sources
    (of_all,) = describe_all_brokers(dynamic)
    assert (of_all.name, of_all.value, of_all.source, of_all.is_read_only) == (
        RETENTION,
        "3",
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
        False,
    )


def test_only_what_can_change_is_not_read_only() -> None:
    """As DescribeConfigs shows it to a tool that offers to change it."""
    shown = {one.name: one.is_read_only for one in describe_broker(DynamicConfig(Config()), {})}
    for name in settings():
        assert shown[name.replace("_", ".")] == (name not in DYNAMIC), name
    assert not shown["max.connections"]
    assert shown["log.dirs"]


def test_what_this_broker_cannot_apply_is_left_out_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Another release or Apache Kafka has stored it: the rest is in force."""
    config = Config(request_size_max=2000, message_max_bytes=1000)
    dynamic = DynamicConfig(config)
    stored = {
        "log.cleaner.threads": "2",
        "broker.id": "7",
        RETENTION: "soon",
        "message.max.bytes": "5000",
        "num.partitions": "3",
    }
    with caplog.at_level(logging.WARNING):
        assert dynamic.apply(stored, {}) == {"num_partitions"}
    assert (config.num_partitions, config.message_max_bytes) == (3, 1000)
    assert dynamic.of_all == {"num.partitions": "3"}
    for name in ("log.cleaner.threads", "broker.id", RETENTION, "message_max_bytes"):
        assert name in caplog.text


def test_values_that_contradict_the_others_are_refused() -> None:
    """By the rule that a start would fail for."""
    dynamic = DynamicConfig(Config(request_size_max=2000, message_max_bytes=1000))
    dynamic.check({}, {"message.max.bytes": "2000"})
    with pytest.raises(KafkaError, match="takes at most request_size_max") as caught:
        dynamic.check({}, {"message.max.bytes": "2001"})
    assert caught.value.code is ErrorCode.INVALID_REQUEST
