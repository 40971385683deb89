"""Gaps that compaction explains: sequences that are missing where offsets are missing, too.

A broker gives each record an offset when it accepts it. So a batch that was never accepted leaves no hole in the offsets,
and one that compaction has removed leaves a hole of its size between the batches of its producer around it. A gap in
the sequences of a log that was compacted is excused if there are enough missing offsets between its ends; otherwise
it stays a problem. Holes that several producers share are counted for each.

What is left of a compacted batch keeps offsets and sequences: `last_offset_delta` and `base_sequence` are as they were,
only its records are fewer. Whether a log was compacted is known from such batches, from the checkpoint of the cleaner in
a data directory, or from the topic's `cleanup.policy` in a running cluster. Where it is not known, of a partition's directory
alone or without the right to ask for the policy, the note says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from echoless.pipeline.audit.findings import Finding, FindingKind, Severity
from echoless.pipeline.audit.runs import PARTITION_KEY
from echoless.pipeline.audit.streams import PartitionOfReplica

_KEY_DDL: Final = "replica string, topic string, partition int, is_known boolean"


def excuse_compacted(
    of_producers: DataFrame, batches: DataFrame, compacted: Mapping[PartitionOfReplica, bool]
) -> DataFrame:
    """Replaces the gaps that compaction explains by one note for each log.

    `compacted`: the logs that may have been compacted, and whether that is known.
    """
    if not compacted:
        return of_producers
    rows = [(*key, is_known) for key, is_known in sorted(compacted.items())]
    keys = f.broadcast(of_producers.sparkSession.createDataFrame(rows, _KEY_DDL))
    is_gap = (f.col("kind") == FindingKind.GAP) & (f.col("severity") == Severity.PROBLEM)
    gaps = of_producers.where(is_gap).join(keys, list(PARTITION_KEY))
    if gaps.isEmpty():
        return of_producers
    missing = _missing_offsets(batches.where("crc_ok").join(keys, list(PARTITION_KEY)))
    below = missing.select(*PARTITION_KEY, "base_offset", f.col("missing").alias("below"))
    until = missing.select(
        *PARTITION_KEY, f.col("last_offset").alias("after_offset"), f.col("missing").alias("until")
    )
    judged = (
        gaps.join(below, [*PARTITION_KEY, "base_offset"])
        .join(until, [*PARTITION_KEY, "after_offset"], "left")
        .withColumn("hidden", f.col("below") - f.coalesce("until", f.lit(0)))
        .where("hidden >= records")
    )
    identity = [*PARTITION_KEY, "kind", "producer_id", "producer_epoch", "base_sequence"]
    identity += ["base_offset", "records"]
    excused = judged.select(*identity)
    return (
        of_producers.join(excused, identity, "left_anti")
        .select(*Finding._fields)
        .union(_notes(judged))
    )


def _missing_offsets(batches: DataFrame) -> DataFrame:
    """Adds the number of offsets below each batch that no batch covers; up to its end there are as many."""
    in_order = Window.partitionBy(*PARTITION_KEY).orderBy("base_offset", "position")
    span = f.col("last_offset") - f.col("base_offset") + 1
    until_here = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return batches.withColumn("missing", f.col("last_offset") + 1 - f.sum(span).over(until_here))


def _notes(judged: DataFrame) -> DataFrame:
    """Makes one note for each log, about all that compaction explains in it."""
    found = judged.groupBy(*PARTITION_KEY, "is_known").agg(
        f.count("*").alias("gaps"),
        f.countDistinct("producer_id").alias("producers"),
        f.sum("records").alias("records"),
        f.min("base_offset").alias("base_offset"),
        f.max("base_offset").alias("last_offset"),
    )
    text = f.format_string(
        "%d gaps in the sequences of %d producers, where as many offsets are missing: compaction has removed them%s",
        "gaps",
        "producers",
        f.when(f.col("is_known"), "").otherwise(", or they are lost"),
    )
    columns = {
        "severity": f.lit(Severity.NOTE.value),
        "kind": f.lit(FindingKind.COMPACTED.value),
        "text": text,
        **{n: f.col(n) for n in (*PARTITION_KEY, "records", "base_offset", "last_offset")},
    }
    return found.select(*(columns.get(name, f.lit(None)).alias(name) for name in Finding._fields))
