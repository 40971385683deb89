"""The topics in which coordinators keep their state. Clients may read them, and nothing else."""

from __future__ import annotations

from typing import Final

CONSUMER_OFFSETS: Final = "__consumer_offsets"
"""Consumer groups and the offsets that they have committed."""
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS})
