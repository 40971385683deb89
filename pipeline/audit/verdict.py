"""The audit's outcome on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Row
from rich.console import Console
from rich.table import Table

from pipeline.audit.audit import AuditTables, shown
from pipeline.audit.findings import Finding, Severity

_LINES_MAX: Final = 50
_PARTITIONS_MAX: Final = 50


def show_verdict(tables: AuditTables, console: Console) -> bool:
    """Prints logs, findings and the verdict; returns whether there is no problem."""
    _show_partitions(tables.partitions, console)
    counts = tables.findings.groupBy("severity", "kind").count().collect()
    _show_findings(shown(tables.findings), console)
    problems = sum(row["count"] for row in counts if row.severity == Severity.PROBLEM)
    _show_counts(counts, console)
    style = "bold red" if problems else "bold green"
    console.print(f"{problems} problems" if problems else "no problems", style=style)
    return not problems


def _show_partitions(partitions: DataFrame, console: Console) -> None:
    columns = ("replica", "topic", "partition", "first_offset", "end_offset", "batches", "records")
    rows = partitions.orderBy("topic", "partition", "replica").select(*columns, "bytes")
    table = Table(*(name.replace("_", " ") for name in rows.columns))
    for row in rows.limit(_PARTITIONS_MAX).collect():
        table.add_row(*(f"{v:,}" if isinstance(v, int) else str(v) for v in row))
    console.print(table)
    more = partitions.count() - _PARTITIONS_MAX
    if more > 0:
        console.print(f"and {more} logs more")


def _show_findings(findings: Sequence[Finding], console: Console) -> None:
    for finding in findings[:_LINES_MAX]:
        style = "red" if finding.severity == Severity.PROBLEM else None
        console.print(_line(finding), style=style, soft_wrap=True)
    if len(findings) > _LINES_MAX:
        console.print("and more: see the report, or findings.parquet (--output)")


def _line(finding: Finding) -> str:
    """One finding in one line: what, where, whose."""
    place = f"{finding.topic}-{finding.partition}"
    if finding.base_offset is not None:
        place += f" offset {finding.base_offset}"
    whose = ""
    if finding.producer_id is not None:
        whose = f"producer {finding.producer_id} epoch {finding.producer_epoch}: "
    where = "" if finding.position is None else f" ({finding.file} at {finding.position})"
    return f"{finding.severity}: {finding.kind}: {place}: {whose}{finding.text}{where}"


def _show_counts(counts: Sequence[Row], console: Console) -> None:
    if counts:
        table = Table("severity", "kind", "findings")
        for row in sorted(counts, reverse=True):
            table.add_row(row.severity, row.kind, f"{row['count']:,}")
        console.print(table)
