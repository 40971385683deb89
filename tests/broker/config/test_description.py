"""DescribeConfigs for the broker's own names."""

from __future__ import annotations

from echoless.broker.config.description import ConfigSource, describe_broker
from echoless.broker.config.dynamic import DynamicConfig
from echoless.broker.config.loading import Config
from echoless.broker.config.values import Address, ConfigType


def test_the_value_of_a_secret_is_withheld() -> None:
    """The value is hidden, in the synonyms too, as with Kafka.

    That there is one, and its source, is shown.
    """
    config = Config(zookeeper_digest="u:hunter2")
    entries = {one.name: one for one in describe_broker(DynamicConfig(config), {})}
    digest = entries["zookeeper.digest"]
    assert digest.is_sensitive
    assert (digest.value, digest.source) == (None, ConfigSource.STATIC_BROKER)
    assert digest.type is ConfigType.PASSWORD
    assert "hunter2" not in repr(entries)
    assert not entries["zookeeper.ssl.client.enable"].is_sensitive


def test_tools_find_what_kafka_has_under_its_names() -> None:
    """Addresses with the ports in use, directories, limits, and what they ask before they offer something."""
    config = Config(
        broker_id=3,
        data_dir="/data",
        connections_max=7,
        listen=(Address("broker1", 0), Address("::1", 19092)),
        coordinator="zookeeper://z1:2181,z2:2181/e",
    )
    advertised = {"PLAINTEXT": Address("broker1", 40001), "EXTERNAL": Address("::1", 19092)}
    entries = {one.name: one for one in describe_broker(DynamicConfig(config), advertised)}
    values = {name: one.value for name, one in entries.items()}
    assert len(values) == len(describe_broker(DynamicConfig(config), advertised)), (
        "no name is there twice"
    )
    assert values["listeners"] == "PLAINTEXT://broker1:0,EXTERNAL://[::1]:19092"
    assert values["advertised.listeners"] == "PLAINTEXT://broker1:40001,EXTERNAL://[::1]:19092"
    assert values["zookeeper.connect"] == "z1:2181,z2:2181/e"
    assert (values["log.dirs"], values["node.id"], values["max.connections"]) == ("/data", "3", "7")
    assert values["delete.topic.enable"] == "true"
    assert entries["max.connections"].source is ConfigSource.STATIC_BROKER
    assert entries["delete.topic.enable"].is_default
    assert all(one.doc for one in entries.values())
    assert entries["listeners"].is_read_only
    assert not entries["max.connections"].is_read_only
    assert "zookeeper.connect" not in {
        one.name for one in describe_broker(DynamicConfig(Config()), {})
    }
