"""The verdict of a soak: a row for each client, and the rules that acted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from tests.proofs import verdict
from tests.proofs.judge import Fault, Findings
from tests.soak.limits import DUPLICATED, FATAL, GIVEN_UP, KNOWN


@dataclass(slots=True, kw_only=True)
class Row:
    """One client. Counts of records, except for the fatal errors."""

    client: str
    sent: int = 0
    acknowledged: int = 0
    stored: int = 0
    given_up: dict[str, int] = field(default_factory=dict)
    fatal_errors: list[str] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)

    def counts(self) -> dict[str, int]:
        """Faults by name; only those above 0."""
        found = {fault.value: count for fault, count in self.findings.counts.items() if count}
        found |= {GIVEN_UP: sum(self.given_up.values())} if self.given_up else {}
        return found | ({FATAL: len(self.fatal_errors)} if self.fatal_errors else {})


@dataclass(slots=True, kw_only=True)
class Verdict(verdict.Verdict):
    """The fate of every client's records, with one broker or several."""

    rows: list[Row] = field(default_factory=list)
    rules: Counter[str] = field(default_factory=Counter)
    """Number of rules, by kind."""
    hits: Counter[str] = field(default_factory=Counter)
    """How often they acted."""
    records: list[Path] = field(default_factory=list)
    """The decisions about each client with faults, for `echoless trace`."""

    def figures(self) -> dict[str, int]:
        counts = Counter({Fault.LOST.value: 0, DUPLICATED: 0, Fault.OUT_OF_ORDER.value: 0})
        for row in self.rows:
            counts.update(row.counts())
        return {
            "records sent": sum(row.sent for row in self.rows),
            "acknowledged": sum(row.acknowledged for row in self.rows),
            **counts,
            "rules": self.rules.total(),
            "times that they acted": self.hits.total(),
        }

    @property
    def limitations(self) -> list[str]:
        """Known limitations that the clients showed."""
        return [f"{what}: {KNOWN[row.client, name]}" for row, name, what in self._found(known=True)]

    def _failures(self) -> list[str]:
        return [what for _, _, what in self._found(known=False)]

    def _found(self, *, known: bool) -> Iterator[tuple[Row, str, str]]:
        """Find what should not be and is a known limitation of its client, or is not."""
        for row in self.rows:
            for name, count in row.counts().items():
                if ((row.client, name) in KNOWN) == known:
                    yield row, name, f"{row.client}: {count} {name}"

    def _tables(self) -> Iterator[Table]:
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
        yield table
        rules = Table("rule", "set", "hits", title="rules")
        for kind in sorted(self.rules):
            rules.add_row(kind, str(self.rules[kind]), str(self.hits[kind]))
        yield rules

    def _lines(self) -> Iterator[str]:
        for row in self.rows:
            for line in [*row.findings.examples[:8], *row.fatal_errors[:3]]:
                yield f"{row.client}: {line}"
            if row.given_up:
                yield f"{row.client}: {row.given_up}"
        yield from (f"known: {line}" for line in self.limitations)
        yield from (f"every decision: {path}" for path in self.records)
