"""The progress of a shard, which those who ask about it may know without loading what a shard needs."""

from __future__ import annotations

import enum
from typing import NamedTuple


class ShardState(enum.Enum):
    """Progress of a shard."""

    LOADING = "loading"
    SERVING = "serving"
    FAILED = "failed"
    """Its partition cannot be read."""
    LOST = "lost"


class Unserved(NamedTuple):
    """State that no one serves, though this broker should."""

    partition: int
    state: str
    reason: str
