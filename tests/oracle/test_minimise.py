"""The minimiser leaves exactly what a failure needs."""

from __future__ import annotations

import pytest

from tests.oracle.game import Failure
from tests.oracle.minimise import minimise
from tests.oracle.script import History

_STEPS = (list(range(10)), list(range(10, 20)))


def _play(history: History[int], needed: set[int]) -> Failure[int] | None:
    """Fails at the step after which all the needed ones have been played."""
    first, second = history.recorded or _STEPS
    played: tuple[list[int], list[int]] = ([], [])
    missing = set(needed)
    for half, steps in enumerate((first, second)):
        for step in steps:
            played[half].append(step)
            missing.discard(step)
            if not missing:
                return Failure(history.seed, history.number, played, "")
    return None


@pytest.mark.parametrize("needed", [{0}, {3, 7}, {2, 15}, {12}, {9, 10, 19}])
def test_what_a_failure_needs_is_left(needed: set[int]) -> None:
    """Every other step goes, and those that are left stay in their halves."""
    failure = minimise(lambda history: _play(history, needed), 7, 1)
    assert failure is not None
    assert failure.steps == (
        sorted(step for step in needed if step < 10),
        sorted(step for step in needed if step >= 10),
    )


def test_a_history_that_passes_has_no_failure() -> None:
    """It is played once, and None comes back."""
    assert minimise(lambda _history: None, 7, 1) is None
