"""What DescribeConfigs says of the broker's own names."""

from __future__ import annotations

from broker.config.description import ConfigSource, describe_broker
from broker.config.loading import Config
from broker.config.values import ConfigType


def test_the_value_of_a_secret_is_withheld() -> None:
    """As with Kafka: no value, in the synonyms neither, but that there is one and where from."""
    entries = {one.name: one for one in describe_broker(Config(zookeeper_digest="u:hunter2"))}
    digest = entries["zookeeper.digest"]
    assert digest.is_sensitive
    assert (digest.value, digest.source) == (None, ConfigSource.STATIC_BROKER)
    assert digest.type is ConfigType.PASSWORD
    assert "hunter2" not in repr(entries)
    assert not entries["zookeeper.ssl.client.enable"].is_sensitive
