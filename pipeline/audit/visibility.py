"""Visibility of findings to readers of committed records, and their places in the log.

A run has many batches, of which a repeat concerns some. They are looked up among the batches, by producer, epoch and
sequences; in a sound log there is nothing to look up, and the tables are not read again.

* A sequence that is stored twice is a duplicate for a reader of committed records only if two of its copies are in no
  aborted transaction. Otherwise the repeat is a note. The same for records that come late, if all of them were aborted.
* Sequences that are missing between two batches of one aborted transaction belonged to it: a note.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from echoless.pipeline.audit.findings import Finding, FindingKind, Severity
from echoless.pipeline.audit.runs import PRODUCER_KEY
from echoless.pipeline.audit.transaction_history import TransactionOutcome
from echoless.protocol.sequence import SEQUENCE_MAX

_STORED_WRONGLY: Final = (FindingKind.REPEAT, FindingKind.REORDERING)
_IDENTITY: Final = (
    *PRODUCER_KEY,
    *("kind", "producer_epoch", "base_sequence", "records", "base_offset", "last_offset"),
)
_UNSEEN: Final = (
    ", in transactions that were aborted: readers of committed records see no copy twice"
)


def place_and_excuse(
    of_producers: DataFrame, batches: DataFrame, transactions: DataFrame
) -> DataFrame:
    """Gives repeats their place in the log, and makes notes of what lies in aborted transactions.

    `of_producers` is read several times: it should be cached.
    """
    aborted = transactions.where(f.col("outcome") == TransactionOutcome.ABORTED.value).select(
        *PRODUCER_KEY,
        f.col("base_offset").alias("aborted_from"),
        f.col("last_offset").alias("aborted_to"),
    )
    placed = _place_repeats(of_producers, batches, aborted)
    return placed if aborted.isEmpty() else _excuse_gaps(placed, aborted)


def _place_repeats(of_producers: DataFrame, batches: DataFrame, aborted: DataFrame) -> DataFrame:
    wrong = of_producers.where(f.col("kind").isin(*_STORED_WRONGLY)).select(*_IDENTITY)
    if wrong.isEmpty():
        return of_producers
    named = [f.col(name).alias(f"batch_{name}") for name in ("base_offset", "last_offset")]
    named += [f.col("base_sequence").alias("first"), f.col("last_sequence").alias("last")]
    copies = (
        wrong.join(
            batches.where("crc_ok AND base_sequence >= 0").select(
                *PRODUCER_KEY, "producer_epoch", *named, "max_timestamp", "file", "position"
            ),
            [*PRODUCER_KEY, "producer_epoch"],
        )
        .where(_overlaps() & (f.col("batch_base_offset") <= f.col("last_offset")))
        .join(aborted, list(PRODUCER_KEY), "left")
        .withColumn(
            "is_hidden",
            f.coalesce(
                f.col("batch_base_offset").between(f.col("aborted_from"), f.col("aborted_to")),
                f.lit(False),
            ),
        )
        .groupBy(*_IDENTITY, "batch_base_offset", "batch_last_offset")
        .agg(
            f.max("is_hidden").alias("is_hidden"),
            f.first("max_timestamp").alias("max_timestamp"),
            f.first("file").alias("batch_file"),
            f.first("position").alias("batch_position"),
        )
        .withColumn("is_again", f.col("batch_base_offset") >= f.col("base_offset"))
    )
    place = f.when(
        f.col("is_again"),
        f.struct("batch_base_offset", "max_timestamp", "batch_file", "batch_position"),
    )
    last_offset = f.when(f.col("is_again"), f.col("batch_last_offset"))
    is_seen = ~f.col("is_hidden")
    found = copies.groupBy(*_IDENTITY).agg(
        f.min(place).alias("place"),
        f.max(last_offset).alias("place_end"),
        f.max(f.col("is_again") & is_seen).alias("is_again_seen"),
        f.max(~f.col("is_again") & is_seen).alias("is_before_seen"),
    )
    return _placed(of_producers.join(found, list(_IDENTITY), "left"))


def _overlaps() -> Column:
    """Whether a batch has one of the sequences `base_sequence`, ... of a finding, around the end of the numbers, too."""
    ahead = (f.col("first") - f.col("base_sequence")).bitwiseAND(f.lit(SEQUENCE_MAX))
    behind = (f.col("base_sequence") - f.col("first")).bitwiseAND(f.lit(SEQUENCE_MAX))
    size = (f.col("last") - f.col("first")).bitwiseAND(f.lit(SEQUENCE_MAX))
    return (ahead < f.col("records")) | (behind <= size)


def _placed(marked: DataFrame) -> DataFrame:
    is_repeat = f.col("kind") == FindingKind.REPEAT
    is_unseen = ~f.col("is_again_seen") | (is_repeat & ~f.col("is_before_seen"))
    is_excused = f.coalesce(is_unseen, f.lit(False))
    place = {
        "base_offset": "batch_base_offset",
        "file": "batch_file",
        "position": "batch_position",
        "timestamp": "max_timestamp",
    }
    columns = {
        "severity": f.when(is_excused, Severity.NOTE.value).otherwise(f.col("severity")),
        "text": f.when(is_excused, f.concat("text", f.lit(_UNSEEN))).otherwise(f.col("text")),
        "last_offset": f.coalesce("place_end", "last_offset"),
        **{name: f.coalesce(f.col(f"place.{of}"), f.col(name)) for name, of in place.items()},
    }
    return marked.select(*(columns.get(n, f.col(n)).alias(n) for n in Finding._fields))


def _excuse_gaps(found: DataFrame, aborted: DataFrame) -> DataFrame:
    identity = [*PRODUCER_KEY, "producer_epoch", "base_sequence", "base_offset", "kind"]
    within = (
        found.where(f.col("kind") == FindingKind.GAP)
        .join(aborted, list(PRODUCER_KEY))
        .where("aborted_from <= after_offset AND base_offset <= aborted_to")
        .select(*identity, f.lit(True).alias("is_within"))
        .distinct()
    )
    is_within = f.col("is_within").isNotNull()
    text = f.concat("text", f.lit(", within a transaction that was aborted"))
    columns = {
        "severity": f.when(is_within, Severity.NOTE.value).otherwise(f.col("severity")),
        "text": f.when(is_within, text).otherwise(f.col("text")),
    }
    return found.join(within, identity, "left").select(
        *(columns.get(name, f.col(name)).alias(name) for name in Finding._fields)
    )
