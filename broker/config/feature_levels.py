"""The levels of the feature `echoless.version`: what a cluster does is bounded by its oldest broker (KIP-584).

| level | releases | may be stored where all brokers read it |
|---|---|---|
| 0 | 0.1.0 and 0.2.0, which announce no levels | the settings of topics that 0.1.0 knows, and no internal topics |
| 1 | from 0.3.0 on | internal topics, and every setting of a topic |

A release that begins to store something that the one before cannot read adds a level, and asks for it before it stores
that. `broker/metadata/features.py` has the level in force. Pure.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Final

from echoless.broker.config.internal_topics import CONSUMER_OFFSETS, INTERNAL_TOPICS
from echoless.protocol.errors import ErrorCode, KafkaError

FEATURE: Final = "echoless.version"
GROUP_FEATURE: Final = "group.version"
"""Kafka's: 1 where groups of the consumer protocol are served. Follows from `FEATURE`."""
TRANSACTION_FEATURE: Final = "transaction.version"
"""Kafka's: 2 where transactions are served, of both generations of their protocol (KIP-890). Follows from `FEATURE`."""
TRANSACTION_VERSION_MAX: Final = 2
LEVEL_MIN: Final = 0
LEVEL_MAX: Final = 1
"""The newest level that this release supports."""
INTERNAL_TOPICS_FROM: Final = 1
"""The first level with internal topics and all settings of topics."""
SUPPORTED: Final[Mapping[str, Mapping[str, int]]] = {
    FEATURE: {"min_version": LEVEL_MIN, "max_version": LEVEL_MAX}
}
"""The features that a broker's registration announces, as Kafka writes them."""
_SETTINGS_OF_LEVEL_0: Final = frozenset(
    {
        "index.interval.bytes",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.insync.replicas",
        "producer.state.batches.to.retain",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)
_PLAIN_OF_LEVEL_0: Final = {"cleanup.policy": "delete", "compression.type": "producer"}
"""Settings that 0.1.0 knows with one value."""


def supported_level(features: Mapping[str, Any]) -> int:
    """The newest level that a broker supports, by what its registration announces; 0 if nothing."""
    announced = features.get(FEATURE)
    level = announced.get("max_version") if isinstance(announced, Mapping) else None
    return level if isinstance(level, int) else LEVEL_MIN


def has_internal_topics(level: int, topics: Container[str]) -> bool:
    """Whether internal topics may be stored; where there is one already, no broker is of 0.1.0."""
    return level >= INTERNAL_TOPICS_FROM or CONSUMER_OFFSETS in topics


def transaction_version(level: int) -> int:
    """The generation of transactions that all brokers serve at a level; 0 for none."""
    return TRANSACTION_VERSION_MAX if level >= INTERNAL_TOPICS_FROM else 0


def check_topic(
    level: int, topics: Container[str], name: str, overrides: Mapping[str, str]
) -> None:
    """Refuses what a topic cannot have at a level, in a cluster that has these `topics` already.

    Raises `KafkaError` COORDINATOR_NOT_AVAILABLE for an internal topic, INVALID_CONFIG for a setting.
    """
    if has_internal_topics(level, topics):
        return
    why = (
        f"the feature {FEATURE} is at level {level}: not all brokers of the cluster are known to be of 0.3.0 or later, "
        f"and older ones end when they meet it (echoless features describe)"
    )
    if name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} is not created yet: {why}")
    for setting, value in overrides.items():
        if setting not in _SETTINGS_OF_LEVEL_0 and _PLAIN_OF_LEVEL_0.get(setting) != value:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{setting}={value} cannot be set yet: {why}"
            )
