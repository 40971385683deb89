"""The ages at which producer ids are replaced: before brokers forget, and never while two members may write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.client.copier.id_ages import IdAges
from echoless.client.copier.position import Position
from echoless.client.state import ProducerState

HOUR_S = 3600.0
AGES = IdAges(24 * HOUR_S)
NOW_MS = 10**12


def position(*, age_h: float, since_h: float, is_clean: bool) -> Position:
    return Position(
        offset=0,
        state=ProducerState(producer_id=1, producer_epoch=0),
        born_ms=NOW_MS - round(age_h * HOUR_S * 1000),
        at_ms=NOW_MS - round(since_h * HOUR_S * 1000),
        is_clean=is_clean,
    )


@pytest.mark.parametrize(
    ("age_h", "owned_h", "expected"),
    [(13, 3, True), (11.9, 11.9, False), (13, 1.9, False), (30, 1.9, False), (30, 2, True)],
)
def test_live_replacement(age_h, owned_h, expected):
    """At half the expiration, in a partition that nobody else can have believed to own for two hours."""
    assert AGES.may_replace(age_h * HOUR_S, owned_h * HOUR_S) is expected


@pytest.mark.parametrize(
    ("age_h", "since_h", "is_clean", "expected"),
    [
        *((13, 3, True, True), (100, 90, True, True), (13, 1.9, True, False)),
        *((11, 10, True, False), (100, 90, False, False)),
    ],
)
def test_replacement_at_the_start(age_h, since_h, is_clean, expected):
    """Only where the last copier has ended in order: otherwise records may be stored under the old id."""
    found = position(age_h=age_h, since_h=since_h, is_clean=is_clean)
    assert AGES.may_replace_at_start(found, NOW_MS) is expected


@pytest.mark.parametrize(("age_h", "expected"), [(22.9, False), (23, True), (100, True)])
def test_doubt(age_h, expected):
    """An hour before brokers may forget, what they do not know is no proof any more."""
    assert AGES.is_doubtful(position(age_h=age_h, since_h=1, is_clean=False), NOW_MS) is expected
    assert not AGES.is_doubtful(position(age_h=age_h, since_h=1, is_clean=True), NOW_MS)


@given(st.floats(1, 10**6), st.floats(0, 10**7), st.floats(0, 10**7))
def test_silent_member_and_successor_never_overlap(expiration_s, age_s, owned_s):
    """A member that lost its partitions is silent by then, for as long again as its last records may be under way."""
    ages = IdAges(expiration_s)
    if ages.may_replace(age_s, owned_s):
        assert owned_s >= 2 * ages.silence_s
        assert age_s < expiration_s or age_s >= expiration_s / 2
