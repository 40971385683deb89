"""The verdict of a nemesis run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rich.table import Table

from tests.nemesis.plan import Kind
from tests.proofs import verdict
from tests.proofs.judge import Fault, Findings


@dataclass(slots=True, kw_only=True)
class Verdict(verdict.Verdict):
    """The fate of every producer's records, on every replica."""

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
    """Kinds of faults that this machine cannot produce, with the reason."""
    leader_changes: int = 0
    longest_without_leader_s: float = 0.0
    longest_without_acknowledgement_s: float = 0.0
    longest_stop_s: float = 0.0

    def figures(self) -> dict[str, int]:
        kills = self.inflicted[Kind.KILL] + 3 * self.inflicted[Kind.KILL_ALL]
        return {
            "records sent": self.sent,
            **{fault.value: self.findings.counts[fault] for fault in Fault},
            **self._counts(),
            "faults": self.inflicted.total(),
            "of these SIGKILLs of brokers": kills,
            "changes of leader": self.leader_changes,
        }

    def _failures(self) -> list[str]:
        found = [f"{count} {fault}" for fault, count in self.findings.counts.items() if count]
        if self.sent != self.acknowledged:
            found.append(f"{self.sent - self.acknowledged} sent and never acknowledged")
        return found + [f"{count} {name}" for name, count in self._counts().items() if count]

    def _counts(self) -> dict[str, int]:
        return {
            "fatal errors at the clients": self.fatal_errors,
            "records given up by the clients": self.failed_deliveries,
            "partitions whose replicas differ": self.differing_partitions,
        }

    def _tables(self) -> Iterator[Table]:
        table = verdict.two_columns(self.title)
        counts = {
            "sent": self.sent,
            "acknowledged": self.acknowledged,
            "stored": self.stored,
            "read": self.read,
            **{fault.value: self.findings.counts[fault] for fault in Fault},
            **self._counts(),
            "changes of leader": self.leader_changes,
        }
        verdict.counted(table, counts)
        times = {
            "longest time without a leader": self.longest_without_leader_s,
            "longest time without an acknowledged record": self.longest_without_acknowledgement_s,
            "longest clean stop": self.longest_stop_s,
        }
        for name, seconds in times.items():
            table.add_row(name, f"{seconds:.1f} s")
        table.add_section()
        for kind in Kind:
            told = self.left_out.get(kind)
            table.add_row(kind, f"left out: {told}" if told else str(self.inflicted[kind]))
        yield table

    def _lines(self) -> list[str]:
        return self.findings.examples
