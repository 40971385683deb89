"""The findings of a verification: problems, and notes worth reporting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

FINDINGS_MAX: Final = 1000
"""Problems and notes kept of each kind; the rest is only counted."""


@dataclass(slots=True)
class Findings:
    """Collects lines. A problem is lost or doubled data, or a broken promise; a note is neither."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problem_count: int = 0

    def problem(self, place: str, text: object) -> None:
        """`place` is a file, a position in it, or a partition."""
        self.problem_count += 1
        if len(self.problems) < FINDINGS_MAX:
            self.problems.append(f"{place}: {text}")

    def note(self, place: str, text: object) -> None:
        if len(self.notes) < FINDINGS_MAX:
            self.notes.append(f"{place}: {text}")
