"""Settings of internal topics that no client changes: retention would delete the state of coordinators.

Only the newest record of each key matters, but without compaction the only way to keep it is to keep everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocol.errors import ErrorCode, KafkaError
from protocol.internal_topics import INTERNAL_TOPICS

FIXED: Final[Mapping[str, str]] = {"retention.bytes": "-1", "retention.ms": "-1"}


def in_force(topic: str, overrides: Mapping[str, str]) -> Mapping[str, str]:
    """The overrides of a topic that apply: whatever is stored, nothing of an internal topic expires."""
    return {**overrides, **FIXED} if topic in INTERNAL_TOPICS else overrides


def check_allowed(topic: str, changes: Mapping[str, str]) -> None:
    """Raises `KafkaError` INVALID_CONFIG if new overrides would let records of an internal topic expire."""
    if topic not in INTERNAL_TOPICS:
        return
    for name, value in FIXED.items():
        if changes.get(name, value) != value:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{name} of {topic} is always {value}: retention would delete committed offsets, "
                f"because the topic is not compacted",
            )
