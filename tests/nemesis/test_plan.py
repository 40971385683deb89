"""A seed is a plan: replayed exactly, with every kind, within its bounds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tests.nemesis.plan import OF_ONE_BROKER, Kind, Step, make_plan


def _steps(seed: int, count: int, kinds: Sequence[Kind] = tuple(Kind)) -> list[Step]:
    plan = make_plan(seed, kinds, broker_ids=[1, 2, 3], session_timeout_s=2.0, small_disk_id=3)
    return list(itertools.islice(plan, count))


def test_a_seed_replays() -> None:
    """The same seed makes the same plan, another seed another one."""
    assert _steps(1, 50) == _steps(1, 50)
    assert _steps(1, 50) != _steps(2, 50)


def test_every_kind_comes_before_any_comes_again() -> None:
    """A short run has them all."""
    for seed in range(20):
        assert {step.kind for step in _steps(seed, len(Kind))} == set(Kind)


def test_a_kind_that_cannot_be_had_is_left_out() -> None:
    """It comes neither alone nor together with another."""
    kinds = [Kind.KILL, Kind.PAUSE]
    steps = _steps(3, 100, kinds)
    seconds = [step.second for step in steps if step.second is not None]
    assert {step.kind for step in [*steps, *seconds]} == set(kinds)
    assert seconds


def test_two_faults_at_a_time_befall_two_brokers() -> None:
    """Both are of kinds that affect a single broker."""
    for step in _steps(4, 300):
        assert step.kind is Kind.FULL_DISK or step.broker_id != step.other_id
        if step.second is not None:
            assert step.second.broker_id != step.broker_id
            assert {step.kind, step.second.kind} <= set(OF_ONE_BROKER)


def test_only_a_long_pause_is_longer_than_the_session() -> None:
    """A pause called shorter than the session leaves the session alive."""
    for step in _steps(5, 300):
        assert step.kind is not Kind.PAUSE or step.lasts_s < 2.0
        assert step.kind is not Kind.EXPIRE or step.lasts_s > 2.0
