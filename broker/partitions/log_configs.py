"""The configuration of a topic's logs: its settings, and what an earlier topic of the same name left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from echoless.broker.config.names import Config
from echoless.broker.config.topic import to_log_config
from echoless.broker.metadata.topic import Topic
from echoless.storage.log_config import LogConfig


def log_configs(config: Config, topic: Topic) -> Callable[[int], LogConfig]:
    """The configuration by partition: those that the earlier topic had too let its producers go on."""
    common, before = to_log_config(config, topic.name, topic.config), topic.predecessor
    if before is None:
        return lambda _index: common
    going_on = replace(common, older_ids_end=before.last_producer_id + 1)
    return lambda index: going_on if index < before.partitions else common
