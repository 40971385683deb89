"""The topics in which coordinators keep their state: clients read them, and change nothing that is in them."""

from __future__ import annotations

from typing import Final

CONSUMER_OFFSETS: Final = "__consumer_offsets"
"""Consumer groups and the offsets that they have committed."""
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS})
