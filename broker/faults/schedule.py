"""When a rule acts: not on the first n, on the nth or on every nth, at most m times, by chance, for a while.

`Schedule` is what was asked for, `Turns` how far it has come: a function of the matches, the time
and the seed, and of nothing else, so that a run can be repeated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from echoless.broker.faults.fields import INT32_MAX, RuleError, RuleFields

ALWAYS_LIKELY: Final = 1.0
NTH_MAX: Final = 1000
"""Numbers of matches that one rule may list."""
_NOT_WITH_NTH: Final = {
    "skip": "nth counts from the first match",
    "times": "nth says how often by itself",
    "every": "nth says which by itself",
    "probability": "nth picks its matches, so nothing is left to chance",
}
DURATION_MS_MAX: Final = 7 * 24 * 3600 * 1000


@dataclass(slots=True, frozen=True, kw_only=True)
class Schedule:
    """The choice of matching requests that are acted on. The default: all of them, forever."""

    skip: int = 0
    times: int | None = None
    nth: tuple[int, ...] | None = None
    """The numbers of the matches, from 1 up and ascending. None: it does not pick them by number."""
    every: int = 1
    """Acts on the last of each so many matches, behind those that are skipped."""
    probability: float = ALWAYS_LIKELY
    seed: int | None = None
    """The seed of the chance. None: the broker draws one, and shows it."""
    duration_ms: int | None = None
    """The time for which the rule acts, from the moment it was added."""

    @classmethod
    def read(cls, fields: RuleFields) -> Schedule:
        """Raises `RuleError`."""
        schedule = cls(
            skip=fields.integer("skip", 0, most=INT32_MAX) or 0,
            times=fields.integer("times", least=1, most=INT32_MAX),
            nth=_nth(fields),
            every=fields.integer("every", 1, least=1, most=INT32_MAX) or 1,
            probability=fields.number("probability", ALWAYS_LIKELY, least=0, most=1),
            seed=fields.integer("seed"),
            duration_ms=fields.integer("duration_ms", least=1, most=DURATION_MS_MAX),
        )
        _check_choice(fields, schedule)
        return schedule

    @property
    def uses_chance(self) -> bool:
        return self.probability < ALWAYS_LIKELY

    def document(self) -> dict[str, Any]:
        """The fields that differ from the default, for JSON."""
        default = Schedule()
        shown = {
            name: getattr(self, name)
            for name in self.__slots__
            if getattr(self, name) != getattr(default, name)
        }
        if self.nth is not None:
            shown["nth"] = self.nth[0] if len(self.nth) == 1 else list(self.nth)
        return shown


def _nth(fields: RuleFields) -> tuple[int, ...] | None:
    value = fields.value("nth")
    if value is None:
        return None
    numbers = value if isinstance(value, list) else [value]
    are_numbers = all(type(one) is int and 1 <= one <= INT32_MAX for one in numbers)
    is_usable = are_numbers and 0 < len(numbers) <= NTH_MAX and len(set(numbers)) == len(numbers)
    if not is_usable:
        raise fields.wrong("nth", f"the number of a match from 1 up, or a list of up to {NTH_MAX}")
    return tuple(sorted(numbers))


def _check_choice(fields: RuleFields, schedule: Schedule) -> None:
    """Raises `RuleError` for two fields that pick matches in ways which exclude each other."""
    for name, why in _NOT_WITH_NTH.items():
        if schedule.nth is not None and name in fields:
            raise RuleError(f"{fields.path(name)}: {why}; leave out nth or {name}")
    if schedule.every > 1 and schedule.uses_chance:
        raise RuleError(
            f"{fields.path('probability')}: every picks its matches, so nothing is left to chance; "
            "leave out every or probability"
        )


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

    @property
    def is_spent(self) -> bool:
        """Whether it has acted as often as it is to."""
        if self._schedule.nth is not None:
            return self.hits >= len(self._schedule.nth)
        return self._schedule.times is not None and self.hits >= self._schedule.times

    def is_exhausted(self, now_s: float) -> bool:
        """Whether it will never act again. It stays so."""
        return self.is_spent or (self._ends_at_s is not None and now_s >= self._ends_at_s)

    def take(self, now_s: float) -> bool:
        """Counts one match; returns whether to act on it. Counts nothing once it is exhausted."""
        if self.is_exhausted(now_s):
            return False
        self.seen += 1
        if not self._picks(self.seen):
            return False
        self.hits += 1
        return True

    def _picks(self, number: int) -> bool:
        """Whether it acts on the match of this number, from 1 up."""
        schedule = self._schedule
        if schedule.nth is not None:
            return number == schedule.nth[self.hits]
        number -= schedule.skip
        if number <= 0 or number % schedule.every:
            return False
        likely = schedule.probability
        return likely >= ALWAYS_LIKELY or self.rng.random() < likely
