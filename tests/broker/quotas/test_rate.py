"""Rates and token buckets, with the numbers that Kafka's have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.quotas.rate import SAMPLES, Rate, TokenBucket

NOW = 1000.0


def test_a_first_use_counts_over_ten_seconds() -> None:
    """100 KB at 1000 bytes per second: ten times too much for ten seconds (vector 60)."""
    rate = Rate(1000)
    assert rate.record(100_000, NOW) == 90_000


def test_what_fits_into_ten_seconds_is_not_throttled() -> None:
    """A burst."""
    rate = Rate(1000)
    assert rate.record(10_000, NOW) == 0
    assert rate.record(1, NOW) == 1


@pytest.mark.parametrize(("later", "pause_ms"), [(0.5, 9500), (10.9, 9100), (11.0, 0)])
def test_uses_are_forgotten_after_eleven_seconds(later: float, pause_ms: int) -> None:
    """Until then the window grows with the time that has passed since the oldest one."""
    rate = Rate(1000)
    rate.record(20_000, NOW)
    assert rate.throttle_ms(NOW + later) == pytest.approx(pause_ms, abs=1)
    assert rate.is_unused(NOW + later) == (later >= 11)


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(1, 1e6)), max_size=60), st.floats(1, 1e5))
def test_memory_is_bounded_and_a_pause_ends(uses: list[tuple[float, float]], limit: float) -> None:
    """However often and however much is used; and what goes on at the limit is not throttled for ever."""
    rate, now = Rate(limit), NOW
    for wait, used in uses:
        now += wait
        assert (rate.record(used, now) > 0) == (rate.throttle_ms(now) > 0)
        assert len(rate._samples) <= SAMPLES
    assert rate.throttle_ms(now + SAMPLES + 1) == 0


def test_a_bucket_may_be_in_debt() -> None:
    """12 of 11 tokens at one per second, then a second until the debt is paid (vector 62)."""
    bucket = TokenBucket(1, NOW)
    bucket.take(12, NOW)
    assert bucket.throttle_ms(NOW) == 1000
    assert bucket.throttle_ms(NOW + 0.5) == 500
    assert bucket.throttle_ms(NOW + 1) == 0
    assert not bucket.is_unused(NOW + 11.9)
    assert bucket.is_unused(NOW + 12)
