"""The breadth-first search over two ids that share the bounds and the supply of producer ids.

What one id can do next does not depend on the other, so its moves are worked out once for each of its worlds; the search
itself is over pairs of their numbers. Every pair within the bounds is reached by a shortest path.
"""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

from echoless.coordinators.transactions.config import StepInputs, TransactionConfig
from tests.coordinators.transactions.exploration.moves import moves
from tests.coordinators.transactions.exploration.world import BrokenInvariantError, IdWorld

Pair = tuple[int, int, int, int, int]
"""The numbers of two worlds, the next producer id, requests and faults that may still come."""


class Bounds(NamedTuple):
    """The size of a search."""

    requests: int
    faults: int
    version: int = 2
    """The level of the feature."""
    hold_ms: int = 0
    producer_id: int = 7
    """The first producer id that is given out."""
    is_two_phase: bool = False
    """Whether clients also ask for transactions in two phases, and keep them."""
    starts: tuple[IdWorld, IdWorld] = (IdWorld(), IdWorld())


class Found(NamedTuple):
    """The outcome of a search."""

    states: int
    """Pairs of worlds, with what may still come."""
    worlds: int
    """Worlds of one id."""
    moves: int
    is_complete: bool
    violation: str | None = None
    """The broken invariant, and the moves that lead to it."""


class _Step(NamedTuple):
    world: int
    requests: int
    faults: int
    takes_id: int


class Search:
    """A search; `run` ends at the first violation, at a bound on states, or when everything has been seen."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._config = TransactionConfig(
            transaction_version=bounds.version,
            hold_ms=bounds.hold_ms,
            held_max=2,
            transaction_max_timeout_ms=1_000,
            two_phase_commit_enable=bounds.is_two_phase,
        )
        self._numbers: dict[IdWorld, int] = {}
        self._worlds: list[IdWorld] = []
        self._steps: dict[tuple[int, int, bool, bool], list[_Step]] = {}
        self._moves = 0

    def run(self, states_max: int = 10_000_000, seconds: float = 1e9) -> Found:
        """Search. A bound on states or time makes it incomplete."""
        first, second = self._bounds.starts
        start: Pair = (
            *(self._number(first), self._number(second)),
            *(self._bounds.producer_id, self._bounds.requests, self._bounds.faults),
        )
        before: dict[Pair, Pair | None] = {start: None}
        queue, end = deque([start]), time.monotonic() + seconds
        while queue:
            pair = queue.popleft()
            try:
                following = self._following(pair)
            except BrokenInvariantError as violation:
                return self._found(before, pair, str(violation))
            for each in following:
                if each not in before:
                    before[each] = pair
                    queue.append(each)
            if len(before) >= states_max or time.monotonic() > end:
                return Found(len(before), len(self._worlds), self._moves, is_complete=not queue)
        return Found(len(before), len(self._worlds), self._moves, is_complete=True)

    def _following(self, pair: Pair) -> list[Pair]:
        first, second, producer_id, requests, faults = pair
        found: list[Pair] = []
        for step in self._steps_of(first, producer_id, requests > 0, faults > 0):
            rest = producer_id + step.takes_id, requests - step.requests, faults - step.faults
            found.append((step.world, second, *rest))
        for step in self._steps_of(second, producer_id, requests > 0, faults > 0):
            rest = producer_id + step.takes_id, requests - step.requests, faults - step.faults
            found.append((first, step.world, *rest))
        return found

    def _steps_of(
        self, number: int, producer_id: int, may_ask: bool, may_fail: bool
    ) -> list[_Step]:
        key = number, producer_id, may_ask, may_fail
        steps = self._steps.get(key)
        if steps is None:
            inputs = StepInputs(self._config, producer_id)
            made = moves(self._worlds[number], inputs, may_ask=may_ask, may_fail=may_fail)
            found = {
                _Step(self._number(move.world), move.requests, move.faults, move.takes_id)
                for move in made
            }
            steps = self._steps[key] = sorted(step for step in found if step.world != number)
            self._moves += len(steps)
        return steps

    def _number(self, world: IdWorld) -> int:
        number = self._numbers.setdefault(world, len(self._worlds))
        if number == len(self._worlds):
            self._worlds.append(world)
        return number

    def _found(self, before: dict[Pair, Pair | None], last: Pair, what: str) -> Found:
        """Describe a violation, with the path that leads to it."""
        path: list[Pair] = []
        at: Pair | None = last
        while at is not None:
            path.append(at)
            at = before[at]
        lines = [
            f"  id {place}: {self._named(earlier, later, place)}"
            for earlier, later in zip(path[:0:-1], path[-2::-1], strict=True)
            for place in (0, 1)
            if earlier[place] != later[place]
        ]
        text = "\n".join([what, *lines, f"  then in {self._worlds[last[0]]}"])
        return Found(len(before), len(self._worlds), self._moves, is_complete=False, violation=text)

    def _named(self, earlier: Pair, later: Pair, place: int) -> str:
        inputs = StepInputs(self._config, earlier[2])
        world = self._worlds[earlier[place]]
        for move in moves(world, inputs, may_ask=True, may_fail=True):
            if self._numbers.get(move.world) == later[place]:
                return move.name
        return "?"
