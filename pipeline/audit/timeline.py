"""Data of the report's plots: small tables that Spark makes from large ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as f

from echoless.pipeline.audit.arrow_rows import batch_of, rows_of
from echoless.pipeline.audit.audit import AuditTables
from echoless.pipeline.audit.findings import Finding, Severity
from echoless.pipeline.audit.runs import PRODUCER_KEY, SequenceRun, merged_runs

_SLICES: Final = 200
_MOST: Final = (0.001, 0.999)
_MARGIN: Final = 1
"""Time that plots show beyond `_MOST` of the batches, as a multiple of theirs."""
_MARGIN_MS: Final = 60_000
_WORST_MAX: Final = 6
_BUSIEST_MAX: Final = 3
_RUNS_MAX: Final = 400
_FINDINGS_MAX: Final = 200
_PARTITION: Final = ("topic", "partition")


class TimeSlice(NamedTuple):
    """Records of a span of time, by the timestamps in the batches."""

    start_ms: int
    records: int
    bytes: int
    producers: int
    """Approximate number of distinct producer ids."""


class TimeSlices(NamedTuple):
    """Time of the logs, in equal slices."""

    width_ms: int
    slices: list[TimeSlice]
    batches_outside: int
    """Number of batches with timestamps so far off that the plots leave them out."""


@dataclass(slots=True, frozen=True, kw_only=True)
class SequenceTimeline:
    """Runs and findings of one producer on one partition."""

    replica: str
    topic: str
    partition: int
    producer_id: int
    problems: int
    runs: list[SequenceRun]
    findings: list[Finding]


def time_slices(tables: AuditTables) -> TimeSlices:
    """Divides the time into about 200 slices at most; of each partition one replica is counted."""
    batches = _of_longest_replica(tables).where("crc_ok AND max_timestamp >= 0")
    first, last = _shown_time(batches)
    if first > last:
        return TimeSlices(1, [], 0)
    width = (last - first) // _SLICES + 1
    found = {
        row["slice"]: row
        for row in batches.where(f.col("max_timestamp").between(first, last))
        .groupBy(f.floor((f.col("max_timestamp") - first) / width).alias("slice"))
        .agg(
            f.sum("count").alias("records"),
            f.sum("bytes").alias("bytes"),
            f.count("*").alias("batches"),
            f.approx_count_distinct(f.when(f.col("producer_id") >= 0, f.col("producer_id"))).alias(
                "producers"
            ),
        )
        .collect()
    }
    slices = [
        TimeSlice(first + number * width, row["records"], row["bytes"], row["producers"])
        if (row := found.get(number))
        else TimeSlice(first + number * width, 0, 0, 0)
        for number in range((last - first) // width + 1)
    ]
    return TimeSlices(
        width, slices, batches.count() - sum(row["batches"] for row in found.values())
    )


def _shown_time(batches: DataFrame) -> tuple[int, int]:
    """Returns the time to plot: all of it, or nearly all if a few timestamps lie far outside."""
    row = batches.agg(
        f.min("max_timestamp"),
        f.percentile_approx("max_timestamp", list(_MOST)),
        f.max("max_timestamp"),
    ).first()
    if row is None or row[0] is None:
        return 0, -1
    first, (early, late), last = row
    margin = (late - early) * _MARGIN + _MARGIN_MS
    return max(first, early - margin), min(last, late + margin)


def _of_longest_replica(tables: AuditTables) -> DataFrame:
    longest = Window.partitionBy(*_PARTITION).orderBy(f.desc("end_offset"), "replica")
    chosen = (
        tables.partitions.withColumn("rank", f.row_number().over(longest))
        .where("rank = 1")
        .select("replica", *_PARTITION)
    )
    return tables.batches.join(f.broadcast(chosen), ["replica", *_PARTITION])


def sequence_timelines(tables: AuditTables) -> list[SequenceTimeline]:
    """Returns the producers with most problems; without problems, those that wrote most."""
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
    """Collects the runs nearest to the first problem: the whole history may be too much to show."""
    is_of = f.lit(True)
    for name in PRODUCER_KEY:
        is_of &= f.col(name) == f.lit(of[name])
    near = f.abs(f.col("base_offset") - f.lit(of["offset"]))
    rows = tables.runs.where(is_of).orderBy(near, "base_offset").limit(_RUNS_MAX).collect()
    findings = tables.findings.where(is_of).orderBy("base_offset").limit(_FINDINGS_MAX).collect()
    return SequenceTimeline(
        replica=of["replica"],
        topic=of["topic"],
        partition=of["partition"],
        producer_id=of["producer_id"],
        problems=of["problems"],
        runs=_merged([SequenceRun(*row) for row in rows]),
        findings=[Finding(*row) for row in findings],
    )


def _merged(runs: list[SequenceRun]) -> list[SequenceRun]:
    """Sorts runs in log order, and merges those that continue each other."""
    in_order = sorted(runs, key=lambda run: run.base_offset)
    batches = merged_runs([batch_of(in_order, SequenceRun)])
    return [run for batch in batches for run in rows_of(batch, SequenceRun)]
