"""Faults in rounds: each kind once, in a random order, before any comes again. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TypeVar

Kind = TypeVar("Kind")


def rounds(dice: random.Random, kinds: Sequence[Kind]) -> Iterator[Kind]:
    """Kinds without end. Even a short run has them all."""
    while True:
        yield from dice.sample(kinds, len(kinds))
