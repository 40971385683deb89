"""What a run ends in: a table for people, and whether the promise was kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from tests.nemesis.judge import Fault, Findings
from tests.nemesis.plan import Kind


@dataclass(slots=True, kw_only=True)
class Verdict:
    """Counts are of records, times seconds. `problems` are in words; any of them is a failure."""

    seed: int
    seconds: float
    sent: int = 0
    acknowledged: int = 0
    stored: int = 0
    read: int = 0
    fatal_errors: int = 0
    failed_deliveries: int = 0
    findings: Findings = field(default_factory=Findings)
    differing_partitions: int = 0
    inflicted: Counter[Kind] = field(default_factory=Counter)
    left_out: Mapping[Kind, str] = field(default_factory=dict)
    """Kinds of faults that this machine cannot make, with the reason."""
    leader_changes: int = 0
    longest_without_leader_s: float = 0.0
    longest_without_acknowledgement_s: float = 0.0
    longest_stop_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def is_kept(self) -> bool:
        """Whether the promise was kept and everything came back."""
        return not self.failures

    @property
    def failures(self) -> list[str]:
        """Why it was not."""
        found = [f"{count} {fault}" for fault, count in self.findings.counts.items() if count]
        if self.sent != self.acknowledged:
            found.append(f"{self.sent - self.acknowledged} sent and never acknowledged")
        counts = {
            "fatal errors at the clients": self.fatal_errors,
            "records given up by the clients": self.failed_deliveries,
            "partitions whose replicas differ": self.differing_partitions,
        }
        found += [f"{count} {name}" for name, count in counts.items() if count]
        return found + self.problems

    def print(self, console: Console) -> None:
        """The table, then the examples and problems."""
        table = Table(title=f"nemesis, seed {self.seed}, {self.seconds:.0f} s")
        table.add_column("what")
        table.add_column("how many", justify="right")
        for name, value in self._rows():
            table.add_row(name, value)
        table.add_section()
        for kind in Kind:
            told = self.left_out.get(kind)
            table.add_row(kind, f"left out: {told}" if told else str(self.inflicted[kind]))
        console.print(table)
        for line in [*self.findings.examples, *self.problems]:
            console.print(f"  {line}", markup=False, highlight=False)
        console.print("kept" if self.is_kept else f"BROKEN: {'; '.join(self.failures)}")

    def _rows(self) -> list[tuple[str, str]]:
        counts: dict[str, int] = {
            "sent": self.sent,
            "acknowledged": self.acknowledged,
            "stored": self.stored,
            "read": self.read,
            **{fault.value: self.findings.counts[fault] for fault in Fault},
            "fatal errors at the clients": self.fatal_errors,
            "records given up by the clients": self.failed_deliveries,
            "partitions whose replicas differ": self.differing_partitions,
            "changes of leader": self.leader_changes,
        }
        times = {
            "longest time without a leader": self.longest_without_leader_s,
            "longest time without an acknowledged record": self.longest_without_acknowledgement_s,
            "longest clean stop": self.longest_stop_s,
        }
        return [
            *((name, f"{count:,}") for name, count in counts.items()),
            *((name, f"{seconds:.1f} s") for name, seconds in times.items()),
        ]
