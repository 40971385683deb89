"""When a rule acts: not on the first n, then at most m times, by chance, for a while.

`Schedule` is what was asked for, `Turns` how far it has come: a function of the matches, the time
and the seed, and of nothing else, so that a run can be repeated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from echoless.broker.faults.fields import INT32_MAX, RuleFields

ALWAYS_LIKELY: Final = 1.0
DURATION_MS_MAX: Final = 7 * 24 * 3600 * 1000


@dataclass(slots=True, frozen=True, kw_only=True)
class Schedule:
    """The choice of matching requests that are acted on. The default: all of them, forever."""

    skip: int = 0
    times: int | None = None
    probability: float = ALWAYS_LIKELY
    seed: int | None = None
    """The seed of the chance. None: the broker draws one, and shows it."""
    duration_ms: int | None = None
    """The time for which the rule acts, from the moment it was added."""

    @classmethod
    def read(cls, fields: RuleFields) -> Schedule:
        """Raises `RuleError`."""
        return cls(
            skip=fields.integer("skip", 0, most=INT32_MAX) or 0,
            times=fields.integer("times", least=1, most=INT32_MAX),
            probability=fields.number("probability", ALWAYS_LIKELY, least=0, most=1),
            seed=fields.integer("seed"),
            duration_ms=fields.integer("duration_ms", least=1, most=DURATION_MS_MAX),
        )

    @property
    def uses_chance(self) -> bool:
        return self.probability < ALWAYS_LIKELY

    def document(self) -> dict[str, Any]:
        """The fields that differ from the default, for JSON."""
        default = Schedule()
        return {
            name: getattr(self, name)
            for name in self.__slots__
            if getattr(self, name) != getattr(default, name)
        }


class Turns:
    """The progress of one rule's schedule. Single owner."""

    __slots__ = ("_ends_at_s", "_schedule", "hits", "rng", "seen")

    def __init__(self, schedule: Schedule, *, seed: int, now_s: float) -> None:
        self._schedule = schedule
        self.rng = Random(seed)  # noqa: S311 - a fault may be guessed
        """The source of chance, including the length of a random delay."""
        self._ends_at_s: float | None = None
        if schedule.duration_ms is not None:
            self._ends_at_s = now_s + schedule.duration_ms / 1000
        self.seen = 0
        """Number of requests that matched so far; never less than `hits`."""
        self.hits = 0
        """Number of matching requests that were acted on."""

    def end(self) -> None:
        """Exhausts it now, whatever the time: a timer may be early by the resolution of the clock."""
        self._ends_at_s = -math.inf

    def is_exhausted(self, now_s: float) -> bool:
        """Whether it will never act again. It stays so."""
        if self._ends_at_s is not None and now_s >= self._ends_at_s:
            return True
        return self._schedule.times is not None and self.hits >= self._schedule.times

    def take(self, now_s: float) -> bool:
        """Counts one match; returns whether to act on it. Counts nothing once it is exhausted."""
        if self.is_exhausted(now_s):
            return False
        self.seen += 1
        if self.seen <= self._schedule.skip:
            return False
        likely = self._schedule.probability
        if likely < ALWAYS_LIKELY and self.rng.random() >= likely:
            return False
        self.hits += 1
        return True
