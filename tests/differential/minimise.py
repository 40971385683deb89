"""Makes a failing history shorter: leaves out requests while what is left still fails.

What comes after the failure goes first, then blocks of requests, half as long each time. Each
attempt is replayed on fresh partitions, with a restart where the second half is needed.
"""

from __future__ import annotations

from dataclasses import replace

from tests.differential.history import History, Step
from tests.differential.run import Contest, Failure


def minimise(contest: Contest, number: int) -> Failure | None:
    """The failure of the shortest history found; None if history `number` passes."""
    failure = contest.play_alone(contest.history(number))
    if failure is None:
        return None
    block = failure.step_count
    while block:
        start = 0
        while start < failure.step_count:
            shorter = _without(failure, start, start + block)
            found = contest.play_alone(shorter)
            if found is None:
                start += block
            else:
                failure = found
        block //= 2
    return failure


def _without(failure: Failure, start: int, stop: int) -> History:
    """The history up to its failure, but for the requests `start` to `stop`."""
    first_half = failure.history.halves[0]
    halves: tuple[list[Step], list[Step]] = ([], [])
    for index, step in enumerate([*first_half, *failure.history.halves[1]]):
        if index < failure.step_count and not start <= index < stop:
            halves[index >= len(first_half)].append(step)
    return replace(failure.history, halves=halves)
