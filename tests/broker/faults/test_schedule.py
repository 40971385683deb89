"""Schedules: which matches a rule acts on. Each law is compared with a plain reading of it."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.faults.fields import RuleFields
from echoless.broker.faults.schedule import Schedule, Turns

_DURATION = st.none() | st.integers(1, 5000)
_COUNTED = {"skip": st.integers(0, 5), "times": st.none() | st.integers(1, 5)}
SCHEDULES = (
    st.builds(
        Schedule,
        **_COUNTED,
        probability=st.sampled_from([0.0, 0.3, 1.0]),
        duration_ms=_DURATION,
    )
    | st.builds(Schedule, **_COUNTED, every=st.integers(1, 4), duration_ms=_DURATION)
    | st.builds(
        Schedule,
        nth=st.sets(st.integers(1, 12), min_size=1, max_size=4).map(lambda s: tuple(sorted(s))),
        duration_ms=_DURATION,
    )
)


def acts(schedule: Schedule, seed: int, moments: list[float]) -> list[bool]:
    turns = Turns(schedule, seed=seed, now_s=0.0)
    return [turns.take(moment) for moment in moments]


@given(SCHEDULES, st.integers(0, 2**31), st.lists(st.floats(0, 10), max_size=30).map(sorted))
def test_a_schedule_is_what_it_says(schedule: Schedule, seed: int, moments: list[float]) -> None:
    """Not on the first n, at most m times, by chance, and not after its duration."""
    chance = Random(seed)
    expected, hits = [], 0
    for number, moment in enumerate(moments):
        is_over = schedule.duration_ms is not None and moment >= schedule.duration_ms / 1000
        is_over |= schedule.times is not None and hits >= schedule.times
        is_hit = not is_over and number >= schedule.skip
        is_hit = is_hit and (number - schedule.skip + 1) % schedule.every == 0
        is_hit = is_hit and (schedule.nth is None or number + 1 in schedule.nth)
        if is_hit and schedule.probability < 1:
            is_hit = chance.random() < schedule.probability
        hits += is_hit
        expected.append(is_hit)
    assert acts(schedule, seed, moments) == expected


@given(SCHEDULES, st.integers(0, 2**31), st.integers(0, 30))
def test_the_same_seed_acts_on_the_same_matches(schedule: Schedule, seed: int, n: int) -> None:
    """A run can be repeated."""
    moments = [0.0] * n
    assert acts(schedule, seed, moments) == acts(schedule, seed, moments)


@given(SCHEDULES, st.lists(st.floats(0, 10), max_size=30).map(sorted))
def test_an_exhausted_schedule_stays_so(schedule: Schedule, moments: list[float]) -> None:
    """It neither acts nor counts any more."""
    turns = Turns(schedule, seed=1, now_s=0.0)
    was_exhausted = False
    for moment in moments:
        seen = turns.seen
        if turns.is_exhausted(moment):
            was_exhausted = True
        assert not was_exhausted or turns.is_exhausted(moment)
        acted = turns.take(moment)
        assert not (was_exhausted and (acted or turns.seen > seen))
        assert turns.hits <= turns.seen


@given(SCHEDULES)
def test_a_schedule_reads_what_it_shows(schedule: Schedule) -> None:
    """GET /faults can be posted again."""
    assert Schedule.read(RuleFields("schedule", schedule.document())) == schedule


def test_with_a_chance_of_nothing_it_never_acts() -> None:
    """Probability 0 counts matches and leaves them alone."""
    turns = Turns(Schedule(probability=0.0), seed=1, now_s=0.0)
    assert not any(turns.take(0.0) for _ in range(100))
    assert (turns.seen, turns.hits) == (100, 0)
