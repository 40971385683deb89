"""What the report's plots show: small tables, made from large ones by Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as f

from pipeline.audit.audit import AuditTables
from pipeline.audit.findings import Finding, Severity
from pipeline.audit.runs import PRODUCER_KEY

_SLICES: Final = 200
_WORST_MAX: Final = 6
_BUSIEST_MAX: Final = 3
_RUNS_MAX: Final = 400
_FINDINGS_MAX: Final = 200
_PARTITION: Final = ("topic", "partition")


@dataclass(slots=True, frozen=True, kw_only=True)
class Slice:
    """A span of time, by the timestamps in the batches."""

    start_ms: int
    width_ms: int
    records: int
    bytes: int
    producers: int
    """Different producer ids, counted approximately."""


@dataclass(slots=True, frozen=True, kw_only=True)
class SequenceTimeline:
    """One producer on one partition: offsets against sequences."""

    replica: str
    topic: str
    partition: int
    producer_id: int
    problems: int
    runs: list[Row]
    """With `producer_epoch`, `base_offset`, `last_offset`, `base_sequence`, `sequences`."""
    findings: list[Finding]


def slices(tables: AuditTables) -> list[Slice]:
    """The whole time of the logs in at most 200 parts; every partition is counted once."""
    ends = tables.partitions.agg(f.min("first_timestamp"), f.max("last_timestamp")).first()
    if ends is None or ends[0] is None or ends[1] is None:
        return []
    first, last = int(ends[0]), int(ends[1])
    width = (last - first) // _SLICES + 1
    rows = (
        _of_longest_replica(tables)
        .where("crc_ok AND max_timestamp >= 0")
        .groupBy(f.floor((f.col("max_timestamp") - first) / width).alias("slice"))
        .agg(
            f.sum("count").alias("records"),
            f.sum("bytes").alias("bytes"),
            f.approx_count_distinct(f.expr("nullif(greatest(producer_id, -1), -1)")).alias(
                "producers"
            ),
        )
        .collect()
    )
    found = {int(row["slice"]): row for row in rows}
    return [
        Slice(
            start_ms=first + number * width,
            width_ms=width,
            records=found[number]["records"] if number in found else 0,
            bytes=found[number]["bytes"] if number in found else 0,
            producers=found[number]["producers"] if number in found else 0,
        )
        for number in range((last - first) // width + 1)
    ]


def _of_longest_replica(tables: AuditTables) -> DataFrame:
    longest = Window.partitionBy(*_PARTITION).orderBy(f.desc("end_offset"), "replica")
    chosen = (
        tables.partitions.withColumn("rank", f.row_number().over(longest))
        .where("rank = 1")
        .select("replica", *_PARTITION)
    )
    return tables.batches.join(f.broadcast(chosen), ["replica", *_PARTITION])


def sequence_timelines(tables: AuditTables) -> list[SequenceTimeline]:
    """The producers with most problems; where there is none, those that wrote most."""
    problems = tables.findings.where(f.col("severity") == Severity.PROBLEM).where(
        "producer_id IS NOT NULL"
    )
    worst = (
        problems.groupBy(*PRODUCER_KEY)
        .agg(f.count("*").alias("problems"), f.min("base_offset").alias("offset"))
        .orderBy(f.desc("problems"), *PRODUCER_KEY)
        .limit(_WORST_MAX)
        .collect()
    )
    if not worst:
        worst = (
            tables.runs.groupBy(*PRODUCER_KEY)
            .agg(f.lit(0).alias("problems"), f.min("base_offset").alias("offset"))
            .join(
                tables.runs.groupBy(*PRODUCER_KEY).agg(f.sum("batches").alias("written")),
                list(PRODUCER_KEY),
            )
            .orderBy(f.desc("written"), *PRODUCER_KEY)
            .limit(_BUSIEST_MAX)
            .collect()
        )
    return [_timeline(tables, row) for row in worst]


def _timeline(tables: AuditTables, of: Row) -> SequenceTimeline:
    """The runs nearest to the first problem: the whole history may be too much to show."""
    is_of = f.lit(True)
    for name in PRODUCER_KEY:
        is_of &= f.col(name) == f.lit(of[name])
    near = f.abs(f.col("base_offset") - f.lit(of["offset"]))
    runs = tables.runs.where(is_of).orderBy(near, "base_offset").limit(_RUNS_MAX).collect()
    findings = tables.findings.where(is_of).orderBy("base_offset").limit(_FINDINGS_MAX).collect()
    return SequenceTimeline(
        replica=of["replica"],
        topic=of["topic"],
        partition=of["partition"],
        producer_id=of["producer_id"],
        problems=of["problems"],
        runs=sorted(runs, key=lambda run: int(run["base_offset"])),
        findings=[Finding(*row) for row in findings],
    )
