"""Makes a failing history shorter: leaves out steps while what is left still fails.

What comes after the failure goes first, then blocks of steps, half as long each time. Each attempt
is played anew, with a restart where the second half is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.oracle.game import Failure, Halves
from tests.oracle.script import History

StepT = TypeVar("StepT")


def minimise(
    play: Callable[[History[StepT]], Failure[StepT] | None], seed: int, number: int
) -> Failure[StepT] | None:
    """The failure of the shortest history found; None if the history passes. `play` plays one alone."""
    failure = play(History(seed, number))
    if failure is None:
        return None
    block = _length(failure)
    while block:
        start = 0
        while start < _length(failure):
            shorter = _without(failure.steps, start, start + block)
            found = play(History(seed, number, shorter))
            if found is None:
                start += block
            else:
                failure = found
        block //= 2
    return failure


def _length(failure: Failure[StepT]) -> int:
    return sum(map(len, failure.steps))


def _without(steps: Halves[StepT], start: int, stop: int) -> Halves[StepT]:
    """All but the steps `start` to `stop`, counted over both halves."""
    first, second = steps
    before, after = max(start - len(first), 0), max(stop - len(first), 0)
    return [*first[:start], *first[stop:]], [*second[:before], *second[after:]]
