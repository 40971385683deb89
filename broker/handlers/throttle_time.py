"""The throttle time in the answers of the Kafka port: how long the client should pause.

It is set where answers are encoded, not by handlers. There are no quotas, so it is 0, as it is in the answers
that are packed by hand (`protocol/`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

NOT_THROTTLED: Final = 0
"""Milliseconds."""


def with_throttle_time(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer as it is encoded; versions without a throttle time leave it out."""
    return {"throttle_time": NOT_THROTTLED, **answer}
