"""Comparison of the replicas of a partition: below the high watermark they have the same batches.

Equal data is not shuffled: tasks digest the batches of fixed ranges of offsets, the digests are compared, and batches
are compared only where digests differ. Batches are equal if offsets, CRC, leader epoch and length are; the CRC
represents everything else.

The cleaner of each broker has its own pace, and a follower copies what its leader's cleaner has left. So of a compacted log
each replica may lack any batch, or some of its records, and only batches that two of them kept are held against each other:

| at one base offset | has to be equal |
|---|---|
| all batches | last offset, leader epoch, producer, sequence, kind: compaction keeps them |
| those with all their records, without a time for tombstones to go | everything: compaction leaves their bytes |

and batches of two replicas have no offset in common unless they have all. A batch that one lacks above all that the given
cleaners have reached is a note: the cleaner of a replica that is not here may have removed it before it was copied.

Above the smallest high watermark of the replicas the ends of logs may differ until a follower has truncated its own:
that is a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from echoless.pipeline.audit.findings import FINDING_DDL, Finding, FindingKind, Severity
from echoless.pipeline.audit.log_checkpoints import LogCheckpoints
from echoless.pipeline.audit.streams import PartitionOfReplica
from echoless.protocol.record_batch import CONTROL_BIT, DELETE_HORIZON_BIT, TRANSACTIONAL_BIT

_RANGE_BITS: Final = 16
"""Base-2 logarithm of the number of offsets that are digested together."""
_PARTITION: Final = ("topic", "partition")
_OVERLAPS: Final = "; another replica has a batch with some of its offsets"
_LACKED: Final = "; another replica lacks it, where no cleaner that is known has been: the leader's had, or it is lost"


def compare_replicas(
    batches: DataFrame,
    partitions: DataFrame,
    hidden: DataFrame,
    checkpoints: LogCheckpoints,
    compaction: Mapping[PartitionOfReplica, bool | None],
) -> DataFrame:
    """Finds the first difference of each partition that more than one replica has, a contradiction before a lack.

    Offsets that damage hides in one replica (`hidden`) are compared in none.
    """
    session = batches.sparkSession
    cleaned = {
        key: checkpoints.cleaned.get(key, 0)
        for key, is_compacted in compaction.items()
        if is_compacted
    }
    common = _common_ranges(partitions, checkpoints.high_watermarks, cleaned)
    if common.isEmpty():
        return session.createDataFrame([], FINDING_DDL)
    within = batches.where("crc_ok").join(f.broadcast(common), list(_PARTITION))
    within = within.where("base_offset >= first_common AND base_offset < end_common")
    is_hidden = [within[name] == hidden[name] for name in _PARTITION]
    is_hidden += [within["base_offset"].between(hidden["hidden_from"], hidden["hidden_to"])]
    compared = (
        within.join(f.broadcast(hidden), is_hidden, "left_anti")
        .withColumn("range", f.shiftright("base_offset", _RANGE_BITS))
        .withColumn("digest", _digest())
    )
    ranges = _differing_ranges(compared).join(f.broadcast(common), list(_PARTITION))
    ranges = ranges.where("cleaned IS NOT NULL OR range = first_range")
    ranges = ranges.select(*_PARTITION, "range")
    suspects = compared.join(f.broadcast(ranges), [*_PARTITION, "range"])
    first_offsets = (
        _differing_offsets(suspects)
        .groupBy(*_PARTITION)
        .agg(f.min(f.struct("is_note", "base_offset", "reason")).alias("first"))
        .select(*_PARTITION, "first.*")
    )
    return _findings(suspects, first_offsets)


def _digest() -> Column:
    return f.xxhash64("base_offset", "last_offset", "crc", "leader_epoch", "bytes")


def _common_ranges(
    partitions: DataFrame,
    high_watermarks: Mapping[PartitionOfReplica, int],
    cleaned: Mapping[PartitionOfReplica, int],
) -> DataFrame:
    """Returns the offsets that every replica of a partition has, and the end of the committed ones.

    `cleaned`: where the cleaners of compacted logs have come to; null for the others.
    """
    session = partitions.sparkSession

    def offsets(name: str, of: Mapping[PartitionOfReplica, int]) -> DataFrame:
        rows = [(*key, offset) for key, offset in of.items()]
        return session.createDataFrame(
            rows, f"replica string, topic string, partition int, {name} long"
        )

    return (
        partitions.join(
            offsets("high_watermark", high_watermarks), ["replica", *_PARTITION], "left"
        )
        .join(offsets("cleaned", cleaned), ["replica", *_PARTITION], "left")
        .groupBy(*_PARTITION)
        .agg(
            f.count("*").alias("replicas"),
            f.max("first_offset").alias("first_common"),
            f.min("end_offset").alias("end_common"),
            f.min(f.coalesce("high_watermark", f.lit(0))).alias("committed"),
            f.max("cleaned").alias("cleaned"),
        )
        .where("replicas > 1 AND first_common < end_common")
    )


def _differing_ranges(compared: DataFrame) -> DataFrame:
    """Returns the ranges whose batches are not the same in all replicas, with the first one of each partition."""
    by_replica = compared.groupBy("replica", "replicas", *_PARTITION, "range").agg(
        f.expr("bit_xor(digest)").alias("digest"), f.count("*").alias("count")
    )
    in_partition = Window.partitionBy(*_PARTITION)
    return (
        by_replica.groupBy("replicas", *_PARTITION, "range")
        .agg(f.count("*").alias("present"), _differ("digest", "count").alias("differ"))
        .where("present < replicas OR differ")
        .select(*_PARTITION, "range", f.min("range").over(in_partition).alias("first_range"))
    )


def _differing_offsets(suspects: DataFrame) -> DataFrame:
    """Returns the base offsets at which replicas contradict each other, and those at which one lacks a batch (`is_note`)."""
    by_replica = (
        suspects.withColumn("identity", _identity())
        .withColumn("whole", f.when(_is_whole(), f.col("digest")))
        .groupBy("replica", "replicas", "cleaned", *_PARTITION, "base_offset")
        .agg(
            f.expr("bit_xor(digest)").alias("digest"),
            f.count("*").alias("count"),
            f.max("last_offset").alias("last_offset"),
            *(f.max(name).alias(name) for name in ("identity", "whole")),
        )
    )
    in_order = Window.partitionBy(*_PARTITION).orderBy("base_offset")
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    offsets = (
        by_replica.groupBy("replicas", "cleaned", *_PARTITION, "base_offset")
        .agg(
            (f.count("*") < f.col("replicas")).alias("is_missing"),
            _differ("digest", "count").alias("differ"),
            _differ("identity", "whole").alias("contradict"),
            f.max("last_offset").alias("last_offset"),
        )
        .withColumn("end_before", f.max("last_offset").over(before))
    )
    is_compacted = f.col("cleaned").isNotNull()
    overlaps = f.coalesce(f.col("end_before") >= f.col("base_offset"), f.lit(False))
    conflicts = f.when(is_compacted, f.col("contradict") | overlaps).otherwise(
        f.col("is_missing") | f.col("differ")
    )
    is_unexplained = is_compacted & f.col("is_missing") & (f.col("base_offset") >= f.col("cleaned"))
    reason = (
        f.when(is_compacted & overlaps & ~f.col("contradict"), f.lit(_OVERLAPS))
        .when(~conflicts, f.lit(_LACKED))
        .otherwise(f.lit(""))
    )
    return offsets.where(conflicts | is_unexplained).select(
        *_PARTITION, "base_offset", (~conflicts).alias("is_note"), reason.alias("reason")
    )


def _identity() -> Column:
    """Digests what compaction leaves of each batch that it keeps."""
    kind = f.col("attributes").bitwiseAND(f.lit(TRANSACTIONAL_BIT | CONTROL_BIT))
    kept = ("last_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence")
    return f.xxhash64(*kept, kind)


def _is_whole() -> Column:
    """Whether compaction has left all bytes of a batch as they were."""
    spans = f.col("last_offset") - f.col("base_offset") + 1
    has_horizon = f.col("attributes").bitwiseAND(f.lit(DELETE_HORIZON_BIT)) != 0
    return (f.col("count") == spans) & ~has_horizon


def _differ(*names: str) -> Column:
    """Whether the rows of a group differ in one of these columns; nulls differ from nothing."""
    differs = f.lit(False)
    for name in names:
        differs |= f.coalesce(f.min(name) != f.max(name), f.lit(False))
    return differs


def _findings(suspects: DataFrame, first_offsets: DataFrame) -> DataFrame:
    """Makes a finding for each partition, with the batch of each replica at the first difference."""
    batch = f.concat_ws(
        "",
        "replica",
        f.lit(" has crc "),
        f.lower(f.hex("crc")),
        f.lit(" of producer "),
        f.col("producer_id"),
        f.lit(" leader epoch "),
        f.col("leader_epoch"),
    )
    texts = f.concat_ws("; ", f.array_sort(f.collect_list(batch)))
    found = (
        suspects.join(f.broadcast(first_offsets), [*_PARTITION, "base_offset"])
        .groupBy(*_PARTITION, "base_offset", "committed", "is_note", "reason")
        .agg(
            f.concat(texts, f.col("reason")).alias("text"),
            f.min("replica").alias("replica"),
            f.max("last_offset").alias("last_offset"),
            f.min(f.struct("replica", "file")).getField("file").alias("file"),
            f.min(f.struct("replica", "position")).getField("position").alias("position"),
            f.min("max_timestamp").alias("timestamp"),
        )
    )
    is_problem = ~f.col("is_note") & (f.col("base_offset") < f.col("committed"))
    columns = {
        "severity": f.when(is_problem, Severity.PROBLEM.value).otherwise(Severity.NOTE.value),
        "kind": f.lit(FindingKind.DIVERGENCE.value),
        **{n: f.col(n) for n in ("replica", *_PARTITION, "text", "base_offset", "last_offset")},
        **{name: f.col(name) for name in ("file", "position", "timestamp")},
    }
    return found.select(*(columns.get(name, f.lit(None)).alias(name) for name in Finding._fields))
