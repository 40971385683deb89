"""The verdict of a run.

Tables for people, figures for docs/proofs.md, and whether its promise was kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table


@dataclass(slots=True, kw_only=True)
class Verdict(ABC):
    """Counts are of records, times seconds. `problems` are in words; any of them breaks the promise."""

    title: str
    problems: list[str] = field(default_factory=list)

    @property
    def is_kept(self) -> bool:
        """Whether the promise was kept and everything came back."""
        return not self.failures

    @property
    def failures(self) -> list[str]:
        """Why it was not."""
        return [*self._failures(), *self.problems]

    def print(self, console: Console) -> None:
        """Print the tables, then examples and problems, then the verdict."""
        for table in self._tables():
            console.print(table)
        for line in [*self._lines(), *self.problems]:
            console.print(f"  {line}", markup=False, highlight=False)
        console.print("kept" if self.is_kept else f"BROKEN: {'; '.join(self.failures)}")

    @abstractmethod
    def figures(self) -> Mapping[str, int]:
        """Return what was done and found, by name; figures of several runs are added."""

    @abstractmethod
    def _failures(self) -> list[str]:
        """Return what was found and must not be."""

    @abstractmethod
    def _tables(self) -> Iterable[Table]:
        """Return what is printed."""

    def _lines(self) -> Iterable[str]:
        """Return examples of what was found."""
        return ()


def counted(table: Table, counts: Mapping[str, int]) -> None:
    """Add a row for each count."""
    for name, count in counts.items():
        table.add_row(name, f"{count:,}")


def two_columns(title: str) -> Table:
    """Return a table of names and numbers."""
    table = Table(title=title)
    table.add_column("what")
    table.add_column("how many", justify="right")
    return table
