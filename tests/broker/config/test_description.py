"""DescribeConfigs for the broker's own names."""

from __future__ import annotations

from echoless.broker.config.description import ConfigSource, describe_broker
from echoless.broker.config.loading import Config
from echoless.broker.config.values import ConfigType


def test_the_value_of_a_secret_is_withheld() -> None:
    """The value is hidden, in the synonyms too, as with Kafka.

    That there is one, and its source, is shown.
    """
    entries = {one.name: one for one in describe_broker(Config(zookeeper_digest="u:hunter2"))}
    digest = entries["zookeeper.digest"]
    assert digest.is_sensitive
    assert (digest.value, digest.source) == (None, ConfigSource.STATIC_BROKER)
    assert digest.type is ConfigType.PASSWORD
    assert "hunter2" not in repr(entries)
    assert not entries["zookeeper.ssl.client.enable"].is_sensitive
