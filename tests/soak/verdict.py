"""What a run ends in: a row for each client, the rules that struck, and whether all is well."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.nemesis.judge import Fault, Findings
from tests.soak.limits import DUPLICATED, FATAL, GIVEN_UP, KNOWN


@dataclass(slots=True, kw_only=True)
class Row:
    """One client. Counts are of records, but for the fatal errors."""

    client: str
    sent: int = 0
    acknowledged: int = 0
    stored: int = 0
    given_up: dict[str, int] = field(default_factory=dict)
    fatal_errors: list[str] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)

    def counts(self) -> dict[str, int]:
        """What should not be, by name; only what is."""
        found = {fault.value: count for fault, count in self.findings.counts.items() if count}
        found |= {GIVEN_UP: sum(self.given_up.values())} if self.given_up else {}
        return found | ({FATAL: len(self.fatal_errors)} if self.fatal_errors else {})


@dataclass(slots=True, kw_only=True)
class Verdict:
    """Of one kind of brokers. `problems` are in words; any of them breaks the run."""

    title: str
    rows: list[Row] = field(default_factory=list)
    rules: Counter[str] = field(default_factory=Counter)
    """How many there were, by kind."""
    hits: Counter[str] = field(default_factory=Counter)
    """How often they acted."""
    problems: list[str] = field(default_factory=list)
    records: list[Path] = field(default_factory=list)
    """What was decided about each client that something became of, for `echoless trace`."""

    @property
    def failures(self) -> list[str]:
        """What breaks the run: everything that is no known limitation of a client."""
        found = [
            f"{row.client}: {count} {what}"
            for row in self.rows
            for what, count in row.counts().items()
            if (row.client, what) not in KNOWN
        ]
        return found + self.problems

    @property
    def limitations(self) -> list[str]:
        """What clients did that they are known for."""
        return [
            f"{row.client}: {count} {what}: {KNOWN[row.client, what]}"
            for row in self.rows
            for what, count in row.counts().items()
            if (row.client, what) in KNOWN
        ]

    def print(self, console: Console) -> None:
        """The two tables, examples, limitations, and the verdict."""
        names = ("client", "sent", "acknowledged", "stored", Fault.LOST, DUPLICATED)
        table = Table(title=self.title)
        for name in (*names, Fault.OUT_OF_ORDER, GIVEN_UP, FATAL):
            table.add_column(name, justify="left" if name == "client" else "right")
        for row in self.rows:
            counts = row.counts()
            shown = [row.sent, row.acknowledged, row.stored]
            shown += [counts.get(name, 0) for name in (Fault.LOST, DUPLICATED)]
            shown += [counts.get(name, 0) for name in (Fault.OUT_OF_ORDER, GIVEN_UP, FATAL)]
            table.add_row(row.client, *(f"{count:,}" for count in shown))
        console.print(table)
        rules = Table("rule", "set", "hits", title="rules")
        for kind in sorted(self.rules):
            rules.add_row(kind, str(self.rules[kind]), str(self.hits[kind]))
        console.print(rules)
        for row in self.rows:
            for line in [*row.findings.examples[:8], *row.fatal_errors[:3]]:
                console.print(f"  {row.client}: {line}", markup=False, highlight=False)
            if row.given_up:
                console.print(f"  {row.client}: {row.given_up}", markup=False, highlight=False)
        for line in self.limitations:
            console.print(f"known: {line}", markup=False, highlight=False)
        for path in self.records:
            console.print(f"  every decision: {path}", markup=False, highlight=False)
        console.print("kept" if not self.failures else f"BROKEN: {'; '.join(self.failures)}")
