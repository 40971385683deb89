"""The verdict of a proof of the Spark sink."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.table import Table

from tests.proofs import verdict
from tests.spark_proofs.judge import Fault
from tests.spark_proofs.plan import Kind


@dataclass(slots=True, kw_only=True)
class Verdict(verdict.Verdict):
    """Whether the target holds each record of the source once, in order."""

    records: int = 0
    stored: int = 0
    findings: Counter[Fault] = field(default_factory=Counter)
    inflicted: Counter[Kind] = field(default_factory=Counter)
    observed: dict[str, int] = field(default_factory=dict)
    """The effects of the faults: twins, failed attempts, lost answers."""
    seconds: float = 0.0

    def figures(self) -> dict[str, int]:
        return {
            "records of the source": self.records,
            **{fault.value: self.findings[fault] for fault in Fault},
            "faults": self.inflicted.total(),
            **self.observed,
        }

    def _failures(self) -> list[str]:
        return [f"{count:,} {fault}" for fault, count in self.findings.items() if count]

    def _tables(self) -> Iterator[Table]:
        table = verdict.two_columns(self.title)
        verdict.counted(table, {"records of the source": self.records, "stored": self.stored})
        verdict.counted(table, {fault.value: self.findings[fault] for fault in Fault})
        table.add_section()
        verdict.counted(table, {kind.value: self.inflicted[kind] for kind in Kind})
        table.add_section()
        verdict.counted(table, self.observed)
        table.add_section()
        table.add_row("seconds", f"{self.seconds:,.0f}")
        yield table
