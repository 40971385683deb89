"""Sequence arithmetic: 0 to 2**31 - 1, and around."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.sequence import SEQUENCE_MAX, decrement, follows, increment

SEQUENCES = st.integers(0, SEQUENCE_MAX)


def kafka_increment(sequence, count):
    """The arithmetic of `docs/protocol/deduplication.md`, as int32 arithmetic that must not overflow."""
    if sequence > SEQUENCE_MAX - count:
        return count - (SEQUENCE_MAX - sequence) - 1
    return sequence + count


def kafka_decrement(sequence, count):
    """The wrap-around of `docs/protocol/deduplication.md`."""
    if sequence < count:
        return SEQUENCE_MAX - (count - sequence) + 1
    return sequence - count


@given(SEQUENCES, SEQUENCES)
def test_arithmetic_is_kafkas(sequence, count):
    """Modulo 2**31 gives what Kafka's branches give."""
    assert increment(sequence, count) == kafka_increment(sequence, count)
    assert decrement(sequence, count) == kafka_decrement(sequence, count)


@given(SEQUENCES, SEQUENCES)
def test_decrement_undoes_increment(sequence, count):
    """Going forward and back by the same count ends where it began."""
    assert decrement(increment(sequence, count), count) == sequence


@pytest.mark.parametrize(
    ("sequence", "last_sequence", "expected"),
    [
        (0, -1, True),
        (1, -1, False),
        (8, 7, True),
        (7, 7, False),
        (9, 7, False),
        (0, 7, False),
        (SEQUENCE_MAX, SEQUENCE_MAX - 1, True),
        (0, SEQUENCE_MAX, True),
        (1, SEQUENCE_MAX, False),
    ],
)
def test_only_the_very_next_sequence_follows(sequence, last_sequence, expected):
    """One sequence follows a last one: the next, which after the largest is 0."""
    assert follows(sequence, last_sequence) is expected


@given(SEQUENCES)
def test_successor_follows(sequence):
    """The result of `increment` follows."""
    assert follows(increment(sequence, 1), sequence)
