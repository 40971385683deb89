"""Acknowledgements of a batch, looked at one by one."""

from __future__ import annotations

import pytest

from echoless.client.acknowledgements import AcknowledgedBatch, Acknowledgement, Acknowledgements
from echoless.protocol.sequence import SEQUENCE_MAX

DIVIDED = Acknowledgements(
    [
        AcknowledgedBatch("t", 3, 100, 7, 1, SEQUENCE_MAX, True, 2),
        AcknowledgedBatch("t", 3, None, 7, 1, 1, None, 1),
    ]
)


def test_each_record_has_its_own():
    """Offsets and sequences count on, the latter over the wrap; an unknown offset stays unknown."""
    assert list(DIVIDED) == [
        Acknowledgement("t", 3, 100, 7, 1, SEQUENCE_MAX, True),
        Acknowledgement("t", 3, 101, 7, 1, 0, True),
        Acknowledgement("t", 3, None, 7, 1, 1, None),
    ]


def test_they_are_a_sequence():
    """Index, negative index and slice agree with the iteration; beyond the end is an error."""
    one_by_one = list(DIVIDED)
    assert len(DIVIDED) == 3
    assert [DIVIDED[index] for index in range(-3, 3)] == one_by_one * 2
    assert DIVIDED[1:] == one_by_one[1:]
    with pytest.raises(IndexError):
        DIVIDED[3]
