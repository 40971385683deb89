"""Sequence numbers of idempotent producers: 0 ... 2**31 - 1, and then 0 again.

Source: Kafka's `DefaultRecordBatch.incrementSequence` / `decrementSequence`;
`docs/protocol/deduplication.md`. The wrap-around lives here and nowhere else.
"""

from __future__ import annotations

NO_SEQUENCE = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1

SEQUENCE_MAX = 2**31 - 1
_SEQUENCE_COUNT = 2**31

DISTANCE_MAX = 2**30
"""Two sequences of one epoch further apart than this have no order (serial-number arithmetic)."""


def increment(sequence: int, count: int) -> int:
    """The sequence `count` numbers after `sequence` (both >= 0)."""
    return (sequence + count) % _SEQUENCE_COUNT


def decrement(sequence: int, count: int) -> int:
    """The sequence `count` numbers before `sequence` (both >= 0)."""
    return (sequence - count) % _SEQUENCE_COUNT


def follows(sequence: int, last_sequence: int) -> bool:
    """Whether `sequence` is the very next one after `last_sequence` (-1: nothing before it)."""
    return sequence == last_sequence + 1 or (sequence == 0 and last_sequence == SEQUENCE_MAX)
