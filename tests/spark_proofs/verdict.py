"""What a run ends in: a table for people, and whether each record was stored once and in order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from tests.spark_proofs.judge import Fault
from tests.spark_proofs.plan import Kind


@dataclass(slots=True, kw_only=True)
class Verdict:
    """Counts are of records, times seconds. `problems` are in words; any of them is a failure."""

    title: str
    records: int = 0
    stored: int = 0
    findings: Counter[Fault] = field(default_factory=Counter)
    inflicted: Counter[Kind] = field(default_factory=Counter)
    observed: dict[str, int] = field(default_factory=dict)
    """What the faults led to: twins, attempts that failed, answers that were lost."""
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def is_kept(self) -> bool:
        """Whether the target holds each record of the source once, in order."""
        return not self.failures

    @property
    def failures(self) -> list[str]:
        """Why it does not."""
        found = [f"{count:,} {fault}" for fault, count in self.findings.items() if count]
        return found + self.problems

    def print(self, console: Console) -> None:
        """The table, and the problems in words."""
        table = Table(title=self.title)
        table.add_column("what")
        table.add_column("how many", justify="right")
        table.add_row("records of the source", f"{self.records:,}")
        table.add_row("stored", f"{self.stored:,}")
        for fault in Fault:
            table.add_row(fault.value, f"{self.findings[fault]:,}")
        table.add_section()
        for kind in Kind:
            table.add_row(kind.value, f"{self.inflicted[kind]:,}")
        table.add_section()
        for name, count in self.observed.items():
            table.add_row(name, f"{count:,}")
        table.add_section()
        table.add_row("seconds", f"{self.seconds:,.0f}")
        console.print(table)
        for line in self.problems:
            console.print(f"  {line}", markup=False, highlight=False)
        console.print("kept" if self.is_kept else f"BROKEN: {'; '.join(self.failures)}")
