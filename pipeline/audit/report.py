"""The audit's outcome as one HTML file that needs nothing else: no script, no font, no network."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Final

from pyspark.sql import Row

from pipeline.audit.audit import AuditTables, shown
from pipeline.audit.charts import Line, area_chart, line_chart
from pipeline.audit.findings import Finding, Kind, Severity
from pipeline.audit.timeline import SequenceTimeline, Slice, sequence_timelines, slices

_TEMPLATE: Final = Path(__file__).with_name("report.html")
_LOGS_MAX: Final = 500
_SECOND_MS: Final = 1000


@dataclass(slots=True, frozen=True, kw_only=True)
class ReportFacts:
    """What the report says beside the tables."""

    source: str
    """What was audited, in words."""
    made_at: datetime.datetime
    duplicates_avoided: int | None
    """As the brokers count them; None: nobody was asked."""


def write_report(path: Path, tables: AuditTables, facts: ReportFacts) -> None:
    """Writes the file anew."""
    counts = tables.findings.groupBy("severity", "kind").count().collect()
    problems = sum(row["count"] for row in counts if row["severity"] == Severity.PROBLEM)
    partitions = tables.partitions.orderBy("topic", "partition", "replica").limit(_LOGS_MAX)
    timelines = sequence_timelines(tables)
    values = {
        "verdict": f"{problems:,} problems" if problems else "no problems",
        "tone": "bad" if problems else "good",
        "source": escape(facts.source),
        "made": facts.made_at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        "summary": _summary(tables),
        "counts": _table(sorted(counts, reverse=True), ("severity", "kind", "count")),
        **_time_charts(slices(tables)),
        "sequences_about": _about(timelines),
        "sequence_charts": "".join(map(_sequence_chart, timelines)),
        "duplicates": _duplicates(facts.duplicates_avoided),
        "partitions": _table(partitions.collect(), partitions.columns),
        "findings": _table(shown(tables.findings), _FINDING_COLUMNS) or "<p>None.</p>",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(Template(_TEMPLATE.read_text("utf-8")).substitute(values), "utf-8")


_FINDING_COLUMNS: Final = (
    *("severity", "kind", "topic", "partition", "producer_id", "producer_epoch", "text"),
    *("base_offset", "replica", "file", "position"),
)


def _summary(tables: AuditTables) -> str:
    totals = tables.partitions.groupBy().sum("batches", "records", "bytes").first()
    batches, records, size = (totals[index] or 0 for index in range(3)) if totals else (0, 0, 0)
    return (
        f"{tables.partitions.count():,} logs, {batches:,} batches, {records:,} records, "
        f"{size:,} bytes; every checksum was computed."
    )


def _time_charts(found: Sequence[Slice]) -> dict[str, str]:
    def per_second(name: str) -> list[tuple[float, float]]:
        return [(s.start_ms, getattr(s, name) * _SECOND_MS / s.width_ms) for s in found]

    return {
        "records_chart": area_chart("records per second", per_second("records")),
        "bytes_chart": area_chart("bytes per second", per_second("bytes")),
        "producers_chart": area_chart("producers", [(s.start_ms, s.producers) for s in found]),
    }


def _about(timelines: Sequence[SequenceTimeline]) -> str:
    whose = "with most problems" if any(t.problems for t in timelines) else "that wrote most"
    return f"The producers {whose}: offset in the log to the right, sequence upwards."


def _sequence_chart(timeline: SequenceTimeline) -> str:
    lines = [_run_line(run) for run in timeline.runs]
    shown_from = min((line.x1 for line in lines), default=0)
    shown_to = max((line.x2 for line in lines), default=0)
    lines += [
        _finding_line(finding)
        for finding in timeline.findings
        if finding.base_sequence is not None
        and shown_from <= (finding.base_offset or 0) <= shown_to
    ]
    title = (
        f"producer {timeline.producer_id} on {timeline.topic}-{timeline.partition} "
        f"({timeline.problems:,} problems, {timeline.replica})"
    )
    return f"<h3>{escape(title)}</h3>{line_chart(title, lines)}"


def _run_line(run: Row) -> Line:
    base, last = run["base_sequence"], run["base_sequence"] + run["sequences"] - 1
    title = f"epoch {run['producer_epoch']}: sequences {base} to {run['last_sequence']}"
    return Line(run["base_offset"], base, run["last_offset"], last, "run", title)


def _finding_line(finding: Finding) -> Line:
    """Red over the run that is wrong; what is missing hangs in the air before it."""
    base, records = finding.base_sequence or 0, finding.records or 1
    offset = finding.base_offset or 0
    title = f"{finding.kind}: {finding.text}"
    if finding.kind == Kind.GAP:
        return Line(offset, base, offset, base + records - 1, "missing", title)
    return Line(offset, base, offset + records - 1, base + records - 1, finding.severity, title)


def _duplicates(count: int | None) -> str:
    if count is None:
        return "Not known: name the brokers' admin ports with --admin-server."
    return f"{count:,} batches came again since the brokers started, and were stored once."


def _table(rows: Sequence[Row | Finding], columns: Sequence[str]) -> str:
    """Empty without rows."""
    if not rows:
        return ""
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(_cell(_value(row, name), name) for name in columns) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _value(row: Row | Finding, name: str) -> object:
    return getattr(row, name) if isinstance(row, Finding) else row[name]


def _cell(value: object, name: str) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, int) and name not in ("partition", "producer_id"):
        text = _time_text(value) if name.endswith("timestamp") else f"{value:,}"
        return f'<td class="number">{text}</td>'
    return f'<td class="text">{escape(str(value))}</td>'


def _time_text(value: int) -> str:
    try:
        moment = datetime.datetime.fromtimestamp(value / _SECOND_MS, tz=datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return str(value)
    return moment.strftime("%Y-%m-%d %H:%M:%S")
