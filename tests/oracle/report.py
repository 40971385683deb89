"""The findings of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from tests.oracle.game import ANSWERS, Failure, Game

HISTORIES: Final = "histories"


@dataclass(slots=True)
class Report:
    """Counts of what was played, of the named differences, and every failure."""

    names: tuple[str, ...] = ()
    """The differences that may occur."""
    figures: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    """How often each named difference was the reason for unequal answers."""
    failures: list[Failure[Any]] = field(default_factory=list)

    @property
    def histories(self) -> int:
        return self.figures[HISTORIES]

    @property
    def answers_compared(self) -> int:
        return self.figures[ANSWERS]

    def add(self, game: Game[Any]) -> None:
        """Adds one game that has been played."""
        if game.unjudged:
            self.figures[f"{HISTORIES} {game.unjudged}"] += 1
            return
        self.figures[HISTORIES] += 1
        self.figures += game.figures
        self.counts += game.counts
        if game.failure is not None:
            self.failures.append(game.failure)

    def include(self, other: Report) -> None:
        """Adds the findings of another run."""
        self.names = other.names
        self.figures += other.figures
        self.counts += other.counts
        self.failures += other.failures

    def summary(self, *, failures_max: int) -> str:
        """The report in words; a named difference that never occurred is mentioned, too."""
        lines = [f"{failure}\n" for failure in self.failures[:failures_max]]
        lines += [f"{count:8}  {name}" for name, count in sorted(self.counts.items())]
        lines += [f"   never  {name}" for name in self.names if name not in self.counts]
        figures = [f"{count} {name}" for name, count in self.figures.items()]
        lines.append(", ".join([*figures, f"{len(self.failures)} histories failed"]))
        return "\n".join(lines)
