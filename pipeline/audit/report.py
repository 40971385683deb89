"""Report of an audit: one self-contained HTML file without scripts, fonts and network."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Final, NamedTuple

from pyspark.sql import Row

from echoless.pipeline.audit.audit import AuditTables, shown
from echoless.pipeline.audit.charts import PlotLine, area_chart, line_chart
from echoless.pipeline.audit.findings import (
    Finding,
    FindingKind,
    Severity,
    producer_text,
    time_text,
)
from echoless.pipeline.audit.log_diagram import LogDiagram, draw_log, is_drawn
from echoless.pipeline.audit.runs import SequenceRun
from echoless.pipeline.audit.timeline import (
    SequenceTimeline,
    TimeSlices,
    sequence_timelines,
    time_slices,
)

_TEMPLATE: Final = "report.html"
_LOGS_MAX: Final = 500
_SECOND_MS: Final = 1000


@dataclass(slots=True, frozen=True, kw_only=True)
class ReportFacts:
    """Facts for the report that the tables do not have."""

    source: str
    """Name of the cluster or directories that were audited."""
    made_at: datetime.datetime
    duplicates_avoided: int | None
    """Number that the brokers report; None if no broker was asked."""


def write_report(path: Path, tables: AuditTables, facts: ReportFacts) -> None:
    """Writes the report, or replaces it."""
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
        **_time_charts(time_slices(tables)),
        "sequences_about": _about(timelines),
        "sequence_charts": "".join(
            _sequence_chart(timeline)
            + _drawn(_anchor(timeline), draw_log(tables, timeline.findings))
            for timeline in timelines
        ),
        "duplicates": _duplicates(facts.duplicates_avoided),
        "partitions": _table(partitions.collect(), partitions.columns),
        "findings": _findings(shown(tables.findings), _anchors(timelines)),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    template = resources.files(__package__).joinpath(_TEMPLATE).read_text("utf-8")
    path.write_text(Template(template).substitute(values), "utf-8")


def _summary(tables: AuditTables) -> str:
    totals = tables.partitions.groupBy().sum("batches", "records", "bytes").first()
    batches, records, size = (totals[index] or 0 for index in range(3)) if totals else (0, 0, 0)
    return (
        f"{tables.partitions.count():,} logs, {batches:,} batches, {records:,} records, "
        f"{size:,} bytes; every checksum was computed."
    )


def _time_charts(found: TimeSlices) -> dict[str, str]:
    def per_second(name: str) -> list[tuple[float, float]]:
        rate = _SECOND_MS / found.width_ms
        return [(s.start_ms, getattr(s, name) * rate) for s in found.slices]

    outside = f"; {found.batches_outside:,} batches are far outside of what is shown"
    return {
        "outside": outside if found.batches_outside else "",
        "records_chart": area_chart("records per second", per_second("records")),
        "bytes_chart": area_chart("bytes per second", per_second("bytes")),
        "producers_chart": area_chart(
            "producers", [(s.start_ms, s.producers) for s in found.slices]
        ),
    }


def _about(timelines: Sequence[SequenceTimeline]) -> str:
    kind = "with most problems" if any(t.problems for t in timelines) else "that wrote most"
    return f"The producers {kind}: offset in the log to the right, sequence upwards."


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
        f"({timeline.problems:,} {'problem' if timeline.problems == 1 else 'problems'}, {timeline.replica})"
    )
    return f"<h3>{escape(title)}</h3>{line_chart(title, lines)}"


def _drawn(anchor: str, diagram: LogDiagram | None) -> str:
    """Embeds a diagram as an image, so that its styles stay its own."""
    if diagram is None:
        return ""
    data = base64.b64encode(diagram.svg.encode()).decode()
    return (
        f'<figure id="{anchor}"><figcaption class="soft">{diagram.batches} batches of this producer as the log holds '
        f"them: a batch that is stored twice has one letter, and stands twice at the bottom.</figcaption>"
        f'<img alt="{escape(diagram.title)}" src="data:image/svg+xml;base64,{data}"></figure>'
    )


def _anchor(of: SequenceTimeline | Finding) -> str:
    """Returns the name of a producer's diagram in the page."""
    parts = (of.replica, of.topic, str(of.partition), str(of.producer_id))
    return "diagram-" + base64.urlsafe_b64encode("|".join(parts).encode()).decode().rstrip("=")


def _anchors(timelines: Sequence[SequenceTimeline]) -> set[str]:
    return {_anchor(timeline) for timeline in timelines if timeline.findings}


def _run_line(run: SequenceRun) -> PlotLine:
    base, last = run.base_sequence, run.base_sequence + run.sequences - 1
    title = f"epoch {run.producer_epoch}: sequences {base} to {run.last_sequence}"
    style = "run later" if run.producer_epoch % 2 else "run"
    return PlotLine(run.base_offset, base, run.last_offset, last, style, title)


def _finding_line(finding: Finding) -> PlotLine:
    """Draws a line over the faulty run; missing sequences are a vertical line before it."""
    base, records = finding.base_sequence or 0, finding.records or 1
    offset = finding.base_offset or 0
    title = f"{finding.kind}: {finding.text}"
    if finding.kind == FindingKind.GAP:
        return PlotLine(offset, base, offset, base + records - 1, "missing", title, is_marked=True)
    end_offset, end = offset + records - 1, base + records - 1
    return PlotLine(offset, base, end_offset, end, finding.severity, title, is_marked=True)


def _duplicates(count: int | None) -> str:
    if count is None:
        return "Not known: name the brokers' admin ports with --admin-server."
    return f"{count:,} batches came again since the brokers started, and were stored once."


def _findings(findings: Sequence[Finding], anchors: set[str]) -> str:
    columns = ("severity", "kind", "log", "offset", "time", "producer", "what", "where", "diagram")
    return _table([_finding_row(one, anchors) for one in findings], columns) or "<p>None.</p>"


def _finding_row(finding: Finding, anchors: set[str]) -> dict[str, object]:
    anchor, where = _anchor(finding), ""
    if finding.file is not None:
        where = f"{finding.replica}: {finding.file} at {finding.position}"
    return {
        "severity": finding.severity,
        "kind": finding.kind.replace("_", " "),
        "log": f"{finding.topic}-{finding.partition}",
        "offset": finding.base_offset,
        "time": "" if finding.timestamp is None else time_text(finding.timestamp),
        "producer": producer_text(finding).removeprefix("producer "),
        "what": finding.text,
        "where": where,
        "diagram": _Link(anchor) if is_drawn(finding) and anchor in anchors else "",
    }


def _table(rows: Sequence[Row | dict[str, object]], columns: Sequence[str]) -> str:
    """Writes a table; nothing without rows."""
    if not rows:
        return ""
    numeric = [name for name in columns if _is_numeric(name, rows[0][name])]
    head = "".join(
        f"<th{_class(name in numeric)}>{escape(name.replace('_', ' '))}</th>" for name in columns
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{_class(name in numeric)}>{_cell(row[name], name)}</td>" for name in columns)
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


class _Link(NamedTuple):
    """A link to a place in the page."""

    anchor: str


def _cell(value: object, name: str) -> str:
    if isinstance(value, _Link):
        return f'<a href="#{value.anchor}">{escape(name)}</a>'
    return escape(_text(value, name))


def _is_numeric(name: str, value: object) -> bool:
    """Whether the column has amounts; the number of a partition is a name."""
    return isinstance(value, int) and name != "partition"


def _class(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _text(value: object, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, int):
        return str(value)
    return time_text(value) if name.endswith("timestamp") else f"{value:,}"
