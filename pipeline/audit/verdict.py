"""Verdict of an audit on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from rich.console import Console
from rich.table import Table

from echoless.pipeline.audit.audit import AuditTables, shown
from echoless.pipeline.audit.findings import Finding, Severity, producer_text, time_text

_LINES_MAX: Final = 50
_PARTITIONS_MAX: Final = 50
_AMOUNTS: Final = ("batches", "records", "bytes")
_OF_TRANSACTIONS: Final = ("markers", "aborted", "open")


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
    table = Table("log", "replica")
    for name in ("first offset", "end offset", "batches", "records", "bytes"):
        table.add_column(name, justify="right")
    rows = partitions.orderBy("topic", "partition", "replica").limit(_PARTITIONS_MAX).collect()
    in_transactions = _OF_TRANSACTIONS if any(row["markers"] or row["open"] for row in rows) else ()
    for name in in_transactions:
        table.add_column(name, justify="right")
    for row in rows:
        columns = ("first_offset", "end_offset", *_AMOUNTS, *in_transactions)
        numbers = (row[name] for name in columns)
        log = f"{row['topic']}-{row['partition']}"
        table.add_row(log, row["replica"], *("-" if n is None else f"{n:,}" for n in numbers))
    console.print(table)
    sums = (f.sum(name) for name in (*_AMOUNTS, *_OF_TRANSACTIONS))
    totals = partitions.groupBy().agg(f.count("*"), *sums).collect()
    logs, batches, records, size, *rest = (n or 0 for n in totals[0])
    console.print(f"{logs:,} logs, {batches:,} batches, {records:,} records, {size:,} bytes")
    if any(rest):
        markers, aborted, waiting = rest
        console.print(
            f"{markers:,} markers; {aborted:,} records of aborted transactions, {waiting:,} of open ones"
        )


def _show_findings(findings: Sequence[Finding], console: Console) -> None:
    for finding in findings[:_LINES_MAX]:
        style = "red" if finding.severity == Severity.PROBLEM else None
        console.print(_line(finding), style=style, soft_wrap=True)
    if len(findings) > _LINES_MAX:
        console.print("and more: see the report, or findings.parquet (--output)")


def _line(finding: Finding) -> str:
    """Writes a finding in one line: kind, partition, producer, text."""
    log = f"{finding.topic}-{finding.partition}"
    if finding.base_offset is not None:
        log += f" offset {finding.base_offset}"
    producer = ""
    if finding.producer_id is not None:
        producer = f"{producer_text(finding)}: "
    where = "" if finding.position is None else f" ({finding.file} at {finding.position})"
    time = "" if finding.timestamp is None else f", {time_text(finding.timestamp)}"
    return f"{finding.severity}: {finding.kind}: {log}{time}: {producer}{finding.text}{where}"


def _show_counts(counts: Sequence[Row], console: Console) -> None:
    if counts:
        table = Table("severity", "kind", "findings")
        for row in sorted(counts, reverse=True):
            table.add_row(row.severity, row.kind, f"{row['count']:,}")
        console.print(table)
