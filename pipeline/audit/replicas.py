"""Comparison of the replicas of a partition: below the high watermark they have the same batches.

Equal data is not shuffled: tasks digest the batches of fixed ranges of offsets, the digests are compared, and batches
are compared only where digests differ. Batches are equal if offsets, CRC, leader epoch and length are; the CRC
represents everything else.

The cleaner of each broker has its own pace. So below the offset that the cleaners of a compacted log have reached nothing is
compared, and nothing at all if one of them does not say.

Above the smallest high watermark of the replicas the ends of logs may differ until a follower has truncated its own:
that is a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from echoless.pipeline.audit.findings import FINDING_DDL, Finding, FindingKind, Severity
from echoless.pipeline.audit.log_checkpoints import LogCheckpoints
from echoless.pipeline.audit.streams import PartitionOfReplica

_RANGE_BITS: Final = 16
"""Base-2 logarithm of the number of offsets that are digested together."""
_PARTITION: Final = ("topic", "partition")
_ALL: Final = 2**62
"""Above all offsets."""


def compare_replicas(
    batches: DataFrame,
    partitions: DataFrame,
    hidden: DataFrame,
    checkpoints: LogCheckpoints,
    compaction: Mapping[PartitionOfReplica, bool],
) -> DataFrame:
    """Finds the first difference of each partition that more than one replica has.

    Offsets that damage hides in one replica (`hidden`) are compared in none.
    """
    session = batches.sparkSession
    cleaned = {
        key: checkpoints.cleaned.get(key, _ALL)
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
    differing = _differing(compared, (*_PARTITION, "range"))
    first_ranges = differing.groupBy(*_PARTITION).agg(f.min("range").alias("range"))
    suspects = compared.join(f.broadcast(first_ranges), [*_PARTITION, "range"])
    offsets = _differing(suspects, (*_PARTITION, "base_offset"))
    first_offsets = offsets.groupBy(*_PARTITION).agg(f.min("base_offset").alias("base_offset"))
    return _findings(suspects, first_offsets, common)


def _digest() -> Column:
    return f.xxhash64("base_offset", "last_offset", "crc", "leader_epoch", "bytes")


def _common_ranges(
    partitions: DataFrame,
    high_watermarks: Mapping[PartitionOfReplica, int],
    cleaned: Mapping[PartitionOfReplica, int],
) -> DataFrame:
    """Returns the offsets that every replica of a partition has, and the end of the committed ones."""
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
            f.greatest(f.max("first_offset"), f.max(f.coalesce("cleaned", f.lit(0)))).alias(
                "first_common"
            ),
            f.min("end_offset").alias("end_common"),
            f.min(f.coalesce("high_watermark", f.lit(0))).alias("committed"),
        )
        .where("replicas > 1 AND first_common < end_common")
    )


def _differing(batches: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Returns the keys for which the replicas' digests differ."""
    by_replica = batches.groupBy("replica", "replicas", *key).agg(
        f.expr("bit_xor(digest)").alias("digest"), f.count("*").alias("count")
    )
    return (
        by_replica.groupBy("replicas", *key)
        .agg(
            f.count("*").alias("present"),
            f.countDistinct("digest", "count").alias("versions"),
        )
        .where("present < replicas OR versions > 1")
    )


def _findings(suspects: DataFrame, first_offsets: DataFrame, common: DataFrame) -> DataFrame:
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
    found = (
        suspects.join(f.broadcast(first_offsets), [*_PARTITION, "base_offset"])
        .groupBy(*_PARTITION, "base_offset")
        .agg(
            f.concat_ws("; ", f.array_sort(f.collect_list(batch))).alias("text"),
            f.min("replica").alias("replica"),
            f.max("last_offset").alias("last_offset"),
            f.min(f.struct("replica", "file")).getField("file").alias("file"),
            f.min(f.struct("replica", "position")).getField("position").alias("position"),
            f.min("max_timestamp").alias("timestamp"),
        )
        .join(f.broadcast(common), list(_PARTITION))
    )
    is_committed = f.col("base_offset") < f.col("committed")
    columns = {
        "severity": f.when(is_committed, Severity.PROBLEM.value).otherwise(Severity.NOTE.value),
        "kind": f.lit(FindingKind.DIVERGENCE.value),
        **{n: f.col(n) for n in ("replica", *_PARTITION, "text", "base_offset", "last_offset")},
        **{name: f.col(name) for name in ("file", "position", "timestamp")},
    }
    return found.select(*(columns.get(name, f.lit(None)).alias(name) for name in Finding._fields))
