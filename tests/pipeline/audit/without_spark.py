"""The audit's steps put together without Spark: for many logs in little time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import pyarrow as pa

from echoless.pipeline.audit.arrow_rows import rows_of
from echoless.pipeline.audit.extents import Extent, extents_of_batches
from echoless.pipeline.audit.findings import Finding
from echoless.pipeline.audit.log_history import LogHistory
from echoless.pipeline.audit.runs import (
    LOG_ORDER,
    PARTITION_KEY,
    PRODUCER_KEY,
    SequenceRun,
    merged_runs,
    runs_of_batches,
)
from echoless.pipeline.audit.sequence_history import ProducerHistory
from echoless.pipeline.audit.transaction_history import JudgedTransaction, TransactionHistory
from echoless.pipeline.audit.transaction_parts import TransactionPart, parts_of_batches
from echoless.pipeline.batches.data_directory import find_partitions, find_segment_ranges
from echoless.pipeline.batches.segment_scan import SegmentScan


def read_batches(data_dir: Path, split_bytes: int = 1 << 30) -> list[pa.RecordBatch]:
    """All rows of a data directory."""
    batches = []
    for part in find_partitions(data_dir):
        for segment_range in find_segment_ranges("r", part, split_bytes):
            with SegmentScan(segment_range) as scan:
                batches += scan.rows()
    return batches


def judge_producers(
    batches: list[pa.RecordBatch], *, complete: bool = True, expiration_ms: int = 86_400_000
) -> Iterator[Finding]:
    """The findings about producers."""
    runs = _sorted(runs_of_batches(batches), PRODUCER_KEY)
    rows = [row for batch in merged_runs(runs) for row in rows_of(batch, SequenceRun)]
    for _, group in groupby(rows, attrgetter(*PRODUCER_KEY)):
        history = ProducerHistory(complete, expiration_ms)
        for run in group:
            yield from history.take(run)
        yield from history.finish()


def judge_logs(
    batches: list[pa.RecordBatch],
    promised_offset: Callable[[str], int] = lambda _: 2**63 - 1,
    *,
    is_compacted: bool | None = None,
    files_meet: bool = True,
    deleted_to: int = 0,
) -> Iterator[Finding]:
    """The findings about bytes and offsets."""
    extents = _sorted(extents_of_batches(batches), PARTITION_KEY)
    rows = [row for batch in extents for row in rows_of(batch, Extent)]
    for key, group in groupby(rows, attrgetter(*PARTITION_KEY)):
        history = LogHistory(promised_offset(key[1]), is_compacted, files_meet, deleted_to)
        for extent in group:
            yield from history.take(extent)
        yield from history.finish()


def judge_transactions(batches: list[pa.RecordBatch]) -> Iterator[JudgedTransaction]:
    """The transactions that were aborted, are open, or ended wrongly."""
    parts = _sorted(parts_of_batches(batches), PRODUCER_KEY)
    rows = [row for batch in parts for row in rows_of(batch, TransactionPart)]
    for _, group in groupby(rows, attrgetter(*PRODUCER_KEY)):
        history = TransactionHistory()
        for part in group:
            yield from history.take(part)
        yield from history.finish()


def _sorted(batches: Iterator[pa.RecordBatch], key: tuple[str, ...]) -> list[pa.RecordBatch]:
    found = list(batches)
    if not found:
        return []
    table = pa.Table.from_batches(found)
    ordered = table.sort_by([(name, "ascending") for name in (*key, *LOG_ORDER)])
    return ordered.combine_chunks().to_batches()
