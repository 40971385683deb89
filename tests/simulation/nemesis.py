"""The schedule of one history's faults: which, when, and for how long. All from the seed.

Faults may overlap; each is undone after its time, or when everything is healed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.checkers.settled import judge_claims_now, judge_states_now
from tests.simulation.faults import FAULTS, Fault, Undo

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

SHORTEST_S: Final = 0.05
LONGEST_S: Final = 8.0

CLAIMS_EVERY_S: Final = 0.02
"""How often it is looked at what leaders count on."""


class Nemesis:
    """Breaks things for a while, then mends all of them."""

    def __init__(
        self,
        cluster: Cluster,
        rng: Random,
        kinds: Sequence[str] | None = None,
        faults: Mapping[str, tuple[int, Fault]] = FAULTS,
    ) -> None:
        self._cluster = cluster
        self._faults = faults
        self._rng = rng
        self._kinds = list(faults if kinds is None else kinds)
        self._undos: dict[int, Undo] = {}
        self._count = 0

    def plan(self, count: int, over_s: float) -> None:
        """Puts `count` faults on the clock."""
        loop, rng = self._cluster.loop, self._rng
        for number in range(int(over_s / CLAIMS_EVERY_S)):
            loop.call_later(number * CLAIMS_EVERY_S, judge_claims_now, self._cluster)
        weights = [self._faults[kind][0] for kind in self._kinds]
        for kind in rng.choices(self._kinds, weights, k=count):
            duration_s = SHORTEST_S + (LONGEST_S - SHORTEST_S) * rng.random() ** 2
            loop.call_later(rng.uniform(0, over_s), self._strike, kind, duration_s)

    def _strike(self, kind: str, duration_s: float) -> None:
        self._cluster.observations.note("fault", kind, round(duration_s, 3))
        judge_states_now(self._cluster)
        number = self._count
        self._count += 1
        self._undos[number] = self._faults[kind][1](self._cluster, self._rng)
        self._cluster.loop.call_later(duration_s, self._undo, number, kind)

    def _undo(self, number: int, kind: str) -> None:
        undo = self._undos.pop(number, None)
        if undo is not None:
            self._cluster.observations.note("fault over", kind)
            undo()

    def heal(self) -> None:
        """Undoes whatever is still broken."""
        for number in list(self._undos):
            self._undo(number, "at the end")
        self._cluster.heal()
