"""The effect of a batch on producer state, row by row."""

from __future__ import annotations

import pytest

from echoless.protocol.control_records import EndMarker, MarkerType, build_marker
from echoless.protocol.producer_effect import NO_EFFECT, ProducerEffect, effect_of, marker_in
from echoless.protocol.record_batch import TRANSACTIONAL_BIT, read_header
from tests.protocol.sample_batches import header

MARKER = EndMarker(MarkerType.ABORT, 3)


@pytest.mark.parametrize(
    ("base_sequence", "attributes", "expected"),
    [
        (0, 0, ProducerEffect(True, False, None)),
        (0, TRANSACTIONAL_BIT, ProducerEffect(True, True, None)),
        (-1, TRANSACTIONAL_BIT, ProducerEffect(False, True, None)),
        (-1, 0, NO_EFFECT),
    ],
)
def test_batches_of_producers(
    base_sequence: int, attributes: int, expected: ProducerEffect
) -> None:
    """The sequence and the transactional bit have an effect each; without both there is none."""
    batch = header(base_sequence, attributes=attributes)
    assert effect_of(batch, None) == expected
    assert effect_of(batch._replace(producer_id=-1), None) is NO_EFFECT


def test_markers() -> None:
    """A marker ends a transaction; a control batch without one has no effect."""
    batch = build_marker(MARKER, 7, 0, 1000)
    marker = read_header(batch)
    assert marker_in(marker, batch) == MARKER
    assert effect_of(marker, MARKER) == ProducerEffect(False, False, MARKER)
    assert effect_of(marker, None) is NO_EFFECT
    assert effect_of(marker._replace(producer_id=-1), MARKER) is NO_EFFECT


def test_records_of_other_batches_are_not_read() -> None:
    """Only a control batch is opened: these bytes are no batch at all."""
    assert marker_in(header(0), b"") is None
