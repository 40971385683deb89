"""A request does not cost much more processor time than it did at a named commit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.guard import BASELINE, ROUNDS_MAX, Cost, compare, costs
from benchmarks.versus_commit import unpacked


@pytest.fixture
def tree_there() -> Iterator[Path]:
    """The broker's code at the baseline; skips if this clone lacks it."""
    try:
        with unpacked(BASELINE) as directory:
            yield directory
    except LookupError as error:
        pytest.skip(f"commit {BASELINE}, to compare with, is not in this clone: {error}")


def test_a_request_costs_at_most_a_third_more_than_at_the_baseline(tree_there: Path) -> None:
    """No kind of request takes 1.3 times the baseline's processor time in the best round of each."""
    found = costs(tree_there)

    expensive = {name: str(cost) for name, cost in found.items() if cost.is_too_high}
    assert not expensive, f"{expensive}; see docs/decisions/request-cost.md"
    undecided = {name: str(cost) for name, cost in found.items() if cost.is_undecided}
    if undecided:
        pytest.skip(f"this machine is too busy to tell: {undecided}")


def rounds(*costs_us: float) -> Callable[[], float]:
    """Measures what is given, the last one over and over."""
    return itertools.chain(costs_us, itertools.repeat(costs_us[-1])).__next__


def always() -> bool:
    return True


def test_rounds_that_were_disturbed_do_not_count() -> None:
    """One undisturbed round of each side is enough, however much the others took."""
    cost = compare(rounds(900, 800, 700, 600, 100, 900), rounds(100), has_time=always)

    assert cost == Cost(100, 100, 5)
    assert not cost.is_too_high
    assert not cost.is_undecided


def test_a_baseline_that_was_disturbed_hides_nothing() -> None:
    """Code that is half as fast is found, although the baseline's first rounds were disturbed too."""
    cost = compare(rounds(200), rounds(300, 250, 100), has_time=always)

    assert cost == Cost(200, 100, ROUNDS_MAX)
    assert cost.is_too_high


def test_a_busy_machine_does_not_decide() -> None:
    """If there is no time for all rounds, the cost is neither too high nor low enough."""
    cost = compare(rounds(200), rounds(100), has_time=iter([True, False]).__next__)

    assert cost == Cost(200, 100, 2)
    assert not cost.is_too_high
    assert cost.is_undecided
