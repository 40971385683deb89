"""The rows of one span, as a task reads them: fetched one piece ahead, and never beyond the span.

The end is reached by position, not by a record: the last offsets may be markers, aborted, or compacted away.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.reading.bounds import EARLIEST
from echoless.pipeline.reading.connections import ask_another
from echoless.pipeline.reading.errors import DataLossError, ReadError
from echoless.pipeline.reading.options import READ_COMMITTED, ReaderOptions
from echoless.pipeline.reading.partition_log import OffsetGoneError, PartitionLog
from echoless.pipeline.reading.row_batches import RowBatches
from echoless.pipeline.reading.source_topics import SourceTopics
from echoless.pipeline.reading.span import OffsetSpan
from echoless.pipeline.reading.visible_batches import VisibleBatch, find_visible
from echoless.protocol.errors import DecodeError

logger = logging.getLogger(__name__)

_FIRST_BYTES: Final = 1024 * 1024
"""Bytes of the first fetch: most spans of a stream are short."""
_EMPTY_MAX: Final = 3
"""Empty answers about offsets that may be read, after which they are believed to be gone."""
_EARLIEST_LOCAL: Final = -4


def read_span(options: ReaderOptions, span: OffsetSpan) -> Iterator[Any]:
    """Yields Arrow batches with the span's rows in order. Raises `ReadError`, `DataLossError`."""
    rows = RowBatches(span, options.columns)
    try:
        for batches in _pieces(options, span):
            yield from rows.of(batches)
    except DecodeError as error:
        raise ReadError(f"{span}: {error}") from error
    except DataLossError as error:
        if options.fails_on_data_loss:
            raise
        logger.warning("%s; failOnDataLoss=false: goes on without them", error)


def _pieces(options: ReaderOptions, span: OffsetSpan) -> Iterator[Sequence[VisibleBatch]]:
    """Yields the visible batches of one fetch after the other."""
    log = PartitionLog(options, span)
    position, bytes_max = span.start, min(_FIRST_BYTES, options.fetch_bytes_max)
    advanced_at, empty_count, gone_count = time.monotonic(), 0, 0
    with ThreadPoolExecutor(1, "echoless-fetch") as ahead:
        coming = ahead.submit(log.fetch, position, bytes_max)
        while True:
            try:
                fetched = coming.result()
            except OffsetGoneError:
                gone_count += 1
                position = _position_after_loss(
                    options, span, position, is_sure=gone_count >= options.attempts
                )
                batches: Sequence[VisibleBatch] = ()
            else:
                found = find_visible(fetched.records, fetched.aborted, position, span.end)
                batches = found.batches
                if found.next_offset > position:
                    position, advanced_at = found.next_offset, time.monotonic()
                    bytes_max, empty_count, gone_count = options.fetch_bytes_max, 0, 0
                elif not fetched.records and fetched.readable_end >= span.end:
                    empty_count += 1
                    if empty_count >= _EMPTY_MAX and _is_on_broker(options, span, position):
                        return  # compaction has left nothing, and the log has no later batch
            if position < span.end:
                _check_progress(options, span, position, time.monotonic() - advanced_at)
                coming = ahead.submit(log.fetch, position, bytes_max)
            if batches:
                yield batches
            if position >= span.end:
                return


def _check_progress(
    options: ReaderOptions, span: OffsetSpan, position: int, waited_s: float
) -> None:
    if waited_s <= options.patience_s:
        return
    cause = (
        "; a transaction may be open there"
        if options.isolation == READ_COMMITTED
        else "; the log may have become shorter"
    )
    raise ReadError(
        f"{span}: no record at or after offset {position} for {options.patience_s:g} s{cause}"
    )


def _is_on_broker(options: ReaderOptions, span: OffsetSpan, position: int) -> bool:
    """Whether the broker itself has the log from there on; a tiered store may answer late, and the broker with nothing."""
    topics = SourceTopics(options)
    topics.look_up()
    target = TopicPartition(span.topic, span.partition)
    first = topics.offsets({target: _EARLIEST_LOCAL})[target]
    return first is not None and first <= position


def _position_after_loss(
    options: ReaderOptions, span: OffsetSpan, position: int, *, is_sure: bool
) -> int:
    """Returns where to go on, behind offsets that are gone. Raises `DataLossError` if they must not be.

    A broker that did not notice that another leads now may have a shorter log: unless `is_sure`, `position` is tried again.
    """
    topics = SourceTopics(options)
    topics.look_up()
    target = TopicPartition(span.topic, span.partition)
    earliest = topics.offsets({target: EARLIEST})[target] or 0
    if earliest <= position:
        if not is_sure:
            time.sleep(options.retry_s)
            ask_another(options)
            return position
        lost, cause = span.end, "the log ends before them; an unclean election may have cut it"
    else:
        lost = min(earliest, span.end)
        cause = f"the log begins at {earliest}: retention or DeleteRecords has removed them"
    text = f"{span.topic}-{span.partition}: offsets {position} to {lost} are gone: {cause}"
    if options.fails_on_data_loss:
        raise DataLossError(
            f"{text}. Begin a new query behind them, or set failOnDataLoss=false to go on without them"
        )
    logger.warning("%s; failOnDataLoss=false: goes on without them", text)
    return lost
