"""The judgements as Spark transformations: batches are merged where they are read, then sorted and judged.

A task judges its sorted rows as a stream, with the state of one producer, or of one partition, at a time: no group is
ever held as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from echoless.pipeline.audit.arrow_rows import Row, batch_of, ddl_of, rows_of
from echoless.pipeline.audit.extents import Extent
from echoless.pipeline.audit.findings import FINDING_DDL, Finding
from echoless.pipeline.audit.log_history import LogHistory
from echoless.pipeline.audit.runs import (
    LOG_ORDER,
    PARTITION_KEY,
    PRODUCER_KEY,
    SequenceRun,
    merged_runs,
)
from echoless.pipeline.audit.sequence_history import ProducerHistory
from echoless.pipeline.audit.transaction_history import (
    JudgedTransaction,
    TransactionHistory,
    findings_about,
)
from echoless.pipeline.audit.transaction_parts import TransactionPart

PartitionOfReplica = tuple[str, str, int]
_FINDINGS_AT_ONCE: Final = 10_000
_partition_of = attrgetter(*PARTITION_KEY)
_producer_of = attrgetter(*PRODUCER_KEY)


def judge_runs(
    runs: DataFrame, complete: frozenset[PartitionOfReplica], expiration_ms: int
) -> DataFrame:
    """Judges producers. `complete`: logs from which nothing was ever deleted."""

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in merged_runs(batches) for row in rows_of(batch, SequenceRun))
        return _batched(
            (
                finding
                for key, group in groupby(rows, _producer_of)
                for finding in _judge_producer(
                    ProducerHistory(key[:3] in complete, expiration_ms), group
                )
            ),
            Finding,
        )

    return _sorted_by(runs, PRODUCER_KEY).mapInArrow(judge, FINDING_DDL)


def judge_extents(
    extents: DataFrame,
    promised: Mapping[PartitionOfReplica, int],
    compaction: Mapping[PartitionOfReplica, bool | None],
    meeting: frozenset[PartitionOfReplica],
    starts: Mapping[PartitionOfReplica, int],
) -> DataFrame:
    """Judges bytes and offsets.

    `promised`: offsets below which everything must be on disk; `compaction`: whether logs may have been compacted, where
    that is known; `meeting`: logs whose compaction leaves no hole between two files;
    `starts`: where logs begin once they have been read.
    """

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in rows_of(batch, Extent))
        return _batched(
            (
                finding
                for key, group in groupby(rows, _partition_of)
                for finding in _judge_partition(
                    LogHistory(
                        promised.get(key, 0),
                        compaction.get(key),
                        key in meeting,
                        starts.get(key, 0),
                    ),
                    group,
                )
            ),
            Finding,
        )

    return _sorted_by(extents, PARTITION_KEY).mapInArrow(judge, FINDING_DDL)


def judge_transactions(parts: DataFrame) -> DataFrame:
    """Joins the parts of transactions; returns those that were aborted, are open, or ended wrongly."""

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in rows_of(batch, TransactionPart))
        return _batched(
            (
                transaction
                for _, group in groupby(rows, _producer_of)
                for transaction in _judge_transactions(TransactionHistory(), group)
            ),
            JudgedTransaction,
        )

    return _sorted_by(parts, PRODUCER_KEY).mapInArrow(judge, ddl_of(JudgedTransaction))


def findings_of_transactions(transactions: DataFrame) -> DataFrame:
    """Returns what is to be said about them."""

    def describe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in rows_of(batch, JudgedTransaction))
        return _batched((finding for row in rows for finding in findings_about(row)), Finding)

    return transactions.mapInArrow(describe, FINDING_DDL)


def _sorted_by(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    return rows.repartition(*key).sortWithinPartitions(*key, *LOG_ORDER)


def _judge_producer(history: ProducerHistory, runs: Iterable[SequenceRun]) -> Iterator[Finding]:
    for run in runs:
        yield from history.take(run)
    yield from history.finish()


def _judge_transactions(
    history: TransactionHistory, parts: Iterable[TransactionPart]
) -> Iterator[JudgedTransaction]:
    for part in parts:
        yield from history.take(part)
    yield from history.finish()


def _judge_partition(history: LogHistory, extents: Iterable[Extent]) -> Iterator[Finding]:
    for extent in extents:
        yield from history.take(extent)
    yield from history.finish()


def _batched(rows: Iterator[Row], row_type: type[Row]) -> Iterator[pa.RecordBatch]:
    kept: list[Row] = []
    for row in rows:
        kept.append(row)
        if len(kept) == _FINDINGS_AT_ONCE:
            yield batch_of(kept, row_type)
            kept.clear()
    yield batch_of(kept, row_type)
