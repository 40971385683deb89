"""A plan is determined by its seed, and has the requested faults."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from tests.spark_proofs.plan import LONG_PLAN, Kind, make_plan

COUNTS = {**LONG_PLAN, Kind.KILL_DRIVER: 10}


def _plan(seed: int):
    return make_plan(seed, COUNTS, batches=100, rows_per_file=5000)


def test_a_seed_gives_one_plan() -> None:
    """Another seed gives another plan."""
    assert _plan(1) == _plan(1)
    assert _plan(1) != _plan(2)


def test_a_plan_has_as_many_of_each_kind_as_it_was_told() -> None:
    """They are in the order of the batches, of which there are as many as the source has."""
    plan = _plan(3)
    assert Counter(step.kind for step in plan) == COUNTS
    assert [step.batch for step in plan] == sorted(step.batch for step in plan)
    assert all(0 <= step.batch < 100 and 0 <= step.row < 5000 for step in plan)


def test_the_ends_of_drivers_are_apart() -> None:
    """Each restart has some work before the next; the first batch begins undisturbed."""
    ends = [s.batch for s in _plan(4) if s.kind in (Kind.KILL_DRIVER, Kind.SPLIT_BRAIN)]
    assert len(ends) == len(set(ends)) == 12
    assert min(ends) > 0
    assert min(b - a for a, b in pairwise(sorted(ends))) >= 4
