"""Settings of internal topics that no client changes: they keep the newest record of each key, and nothing else.

Retention would delete the state of coordinators. What a coordinator compresses stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.internal_topics import INTERNAL_TOPICS

FIXED: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
_DEFAULTS: Final[Mapping[str, str]] = {"segment.bytes": "104857600"}
"""Settings that Kafka gives such a topic when it creates it; clients may change them."""


def in_force(topic: str, overrides: Mapping[str, str]) -> Mapping[str, str]:
    """The overrides of a topic that apply: whatever is stored, nothing of an internal topic expires."""
    return {**_DEFAULTS, **overrides, **FIXED} if topic in INTERNAL_TOPICS else overrides


def check_allowed(topic: str, changes: Mapping[str, str]) -> None:
    """Raises `KafkaError` INVALID_CONFIG if new overrides would change how an internal topic keeps records."""
    if topic not in INTERNAL_TOPICS:
        return
    for name, value in FIXED.items():
        if changes.get(name, value) != value:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{name} of {topic} is always {value}: coordinators read it back, so the newest record of each "
                f"key stays, and nothing expires but by their own tombstones",
            )
