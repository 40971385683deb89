"""Sequence diagrams of what a log holds around a finding about a producer, as `echoless trace` draws recorded runs.

A log does not have the requests that were lost, or the answers: each stored batch is drawn as a request that was
appended. A batch that is stored twice has one letter, and stands twice in the row of offsets at the bottom. Markers,
and findings, are notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from echoless.diagram import render_svg
from echoless.pipeline.audit.audit import AuditTables
from echoless.pipeline.audit.findings import Finding, FindingKind, Severity
from echoless.pipeline.audit.runs import PRODUCER_KEY
from echoless.protocol.control_records import MarkerType
from echoless.protocol.record_batch import CONTROL_BIT

_NEAR_MAX: Final = 6
"""Batches of the producer that are drawn around each copy."""
_COPIES_MAX: Final = 6
_COLUMNS: Final = (
    *("base_offset", "last_offset", "producer_epoch", "base_sequence", "last_sequence"),
    *("max_timestamp", "attributes", "marker"),
)


@dataclass(slots=True, frozen=True, kw_only=True)
class LogDiagram:
    """A picture of the batches around a producer's first problem."""

    title: str
    svg: str
    """A whole SVG file."""
    batches: int
    """Number of batches that it shows."""


def draw_log(tables: AuditTables, findings: Sequence[Finding]) -> LogDiagram | None:
    """Draws the surroundings of the first of these findings, which are about one producer; None without one."""
    problems = [
        one for one in findings if one.producer_id is not None and one.base_offset is not None
    ]
    problems.sort(key=lambda one: (one.severity != Severity.PROBLEM, one.base_offset or 0))
    if not problems:
        return None
    first = problems[0]
    rows = _rows_around(tables.batches, first)
    title = f"{first.topic}-{first.partition} around offset {first.base_offset}: {first.kind}"
    events = list(_events(rows, first, [one for one in findings if one.severity == first.severity]))
    return LogDiagram(title=title, svg=render_svg(events, title), batches=len(rows))


def _rows_around(batches: DataFrame, finding: Finding) -> list[Any]:
    """Collects the producer's batches that are nearest to each copy of the sequences, in the order of the log."""
    of_producer = batches.where("crc_ok")
    for name in PRODUCER_KEY:
        of_producer = of_producer.where(f.col(name) == f.lit(getattr(finding, name)))
    kept = of_producer.select(*_COLUMNS).cache()
    offsets = {finding.base_offset, finding.after_offset or finding.base_offset}
    if finding.base_sequence is not None and finding.records is not None:
        end = finding.base_sequence + finding.records
        copies = kept.where(f.col("producer_epoch") == f.lit(finding.producer_epoch)).where(
            (f.col("base_sequence") < end)
            & (f.col("last_sequence") >= finding.base_sequence)
            & (f.col("base_sequence") >= 0)
        )
        offsets |= {row[0] for row in copies.orderBy("base_offset").limit(_COPIES_MAX).collect()}
    near = f.least(*(f.abs(f.col("base_offset") - f.lit(one)) for one in (*offsets, *offsets)))
    rows = kept.orderBy(near, "base_offset").limit(_NEAR_MAX * len(offsets)).collect()
    kept.unpersist()
    return sorted(rows, key=lambda row: row["base_offset"])


def _events(
    rows: Iterable[Any], about: Finding, findings: Sequence[Finding]
) -> Iterator[dict[str, Any]]:
    said: set[str] = set()
    for number, row in enumerate(rows, 1):
        time_ms = max(row["max_timestamp"], 0)
        for finding in findings:
            if finding.base_offset == row["base_offset"] and finding.text not in said:
                said.add(finding.text)
                yield _note(time_ms, f"{finding.severity}: {finding.text}")
        if row["attributes"] & CONTROL_BIT:
            if row["marker"] is not None:
                name = MarkerType(row["marker"]).name
                yield _note(time_ms, f"{name} marker at offset {row['base_offset']}")
            continue
        yield {
            "event": "decision",
            "number": number,
            "time_ms": time_ms,
            "topic": about.topic,
            "partition": about.partition,
            "client_id": about.client_id or about.transactional_id or "producer",
            "connection_id": 1,
            "correlation_id": number,
            "producer_id": about.producer_id,
            "producer_epoch": row["producer_epoch"],
            "base_sequence": row["base_sequence"],
            "last_sequence": row["last_sequence"],
            "decision": "append",
            "base_offset": row["base_offset"],
            "error": None,
            "reason": "",
            "window": None,
        }


def _note(time_ms: int, text: str) -> dict[str, Any]:
    return {"event": "note", "time_ms": time_ms, "text": text}


def is_drawn(finding: Finding) -> bool:
    """Whether a diagram can show a finding: it is about a producer, and not about its whole log."""
    return finding.producer_id is not None and finding.kind != FindingKind.COMPACTED
