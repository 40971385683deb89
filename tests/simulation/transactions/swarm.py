"""The draw of a seed for its history: which faults and bad habits exist in it at all, and how often each strikes.

Faults that are always present hide each other: one that stops everybody keeps the rare ones from their work. So a history has
about half of them (Groce et al., "Swarm testing", 2012).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from tests.simulation.transactions.writer import Habits

_PRESENT: Final = 1 / 2
_MOST: Final = 4


def faults(rng: Random, kinds: Sequence[str]) -> list[str]:
    """Some of these kinds, at least one; one that is there several times strikes as much more often."""
    drawn = [kind for kind in kinds if rng.random() < _PRESENT] or [rng.choice(kinds)]
    return [kind for kind in drawn for _ in range(rng.randint(1, _MOST))]


def habits(rng: Random, generation: int) -> Habits:
    """The habits of one program."""

    def sometimes(most: float) -> float:
        return rng.uniform(0, most) if rng.random() < _PRESENT else 0.0

    return Habits(
        generation=generation,
        timeout_ms=rng.choice((800, 2000, 5000)),
        patience_s=rng.choice((3.0, 8.0, 15.0)),
        pause_s=rng.choice((0.3, 1.0, 3.0)),
        aborts=sometimes(0.4),
        abandons=sometimes(0.3),
        oversleeps=sometimes(0.4),
        forgets=sometimes(0.2),
        mixes=sometimes(0.5),
        empties=sometimes(0.3),
        insists=sometimes(1.0),
        hastes=sometimes(0.5),
    )
