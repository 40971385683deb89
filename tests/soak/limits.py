"""Known behaviour of some clients under faults that Echoless cannot cure, each with its reason.

Found by the soak and investigated; anything not listed here fails a run.
"""

from __future__ import annotations

from typing import Final

FATAL: Final = "fatal error"
GIVEN_UP: Final = "records given up"
DUPLICATED: Final = "duplicated"

KNOWN: Final[dict[tuple[str, str], str]] = {
    ("aiokafka", GIVEN_UP): (
        "its request timeout, 1 s here, is also how long it waits for a leader "
        "(LeaderNotAvailableError); the numbers of what it gave up are gone, so that every later "
        "batch of the partition is behind a gap (OutOfOrderSequenceNumber) until the application "
        "makes a new producer"
    ),
}
"""By client and behaviour."""

STUCK_AFTER_A_FAILURE: Final = frozenset({"aiokafka", "kafkajs"})
"""Clients that never raise their epoch: the application has to create a new producer."""
