"""The rows of one span, as a task reads them: fetched one piece ahead, and never beyond the span.

The end is reached by position, not by a record: the last offsets may be markers, aborted, or compacted away.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.reading.bounds import EARLIEST, LATEST
from echoless.pipeline.reading.connections import ask_another
from echoless.pipeline.reading.errors import DataLossError, ReadError
from echoless.pipeline.reading.options import READ_COMMITTED, ReaderOptions
from echoless.pipeline.reading.partition_log import OffsetGoneError, PartitionLog
from echoless.pipeline.reading.row_batches import RowBatches
from echoless.pipeline.reading.source_topics import SourceTopics
from echoless.pipeline.reading.span import OffsetSpan
from echoless.pipeline.reading.topic_choice import TopicChoice
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
    progress, empty_count, gone_count = _Progress(options, span), 0, 0
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
                progress.log_end = fetched.log_end
                found = find_visible(fetched.records, fetched.aborted, position, span.end)
                batches = found.batches
                if found.next_offset > position:
                    position = found.next_offset
                    bytes_max, empty_count, gone_count = options.fetch_bytes_max, 0, 0
                elif not fetched.records and fetched.readable_end >= span.end:
                    empty_count += 1
                    if empty_count >= _EMPTY_MAX and _is_on_broker(options, span, position):
                        return  # compaction has left nothing, and the log has no later batch
            if position < span.end:
                progress.check(position)
                coming = ahead.submit(log.fetch, position, bytes_max)
            if batches:
                yield batches
                progress.begin()  # what Spark does with the rows takes its own time
            if position >= span.end:
                return


class _Progress:
    """Time for which a task waits for brokers without getting further."""

    def __init__(self, options: ReaderOptions, span: OffsetSpan) -> None:
        self._options = options
        self._span = span
        self._position = span.start
        self.log_end = span.end
        """End of the log, as the last fetch had it."""
        self.begin()

    def begin(self) -> None:
        """Counts from now on."""
        self._since = time.monotonic()

    def check(self, position: int) -> None:
        """Raises `ReadError` after `patience_s` at one position; `DataLossError` if the log ends before the span."""
        if position > self._position:
            self._position = position
            self.begin()
        elif time.monotonic() - self._since > self._options.patience_s:
            raise self._given_up()

    def _given_up(self) -> ReadError:
        options, span = self._options, self._span
        text = f"{span}: no record at or after offset {self._position} for {options.patience_s:g} s"
        if self.log_end < span.end:
            ask_another(options)
            end = _offset(options, span, LATEST) or 0
            if end < span.end:
                return DataLossError(
                    f"{text}; the log ends at {end}: an unclean election may have cut it. Begin a new query, or set "
                    "failOnDataLoss=false to go on without them"
                )
        if options.isolation == READ_COMMITTED:
            return ReadError(f"{text}; a transaction may be open there")
        return ReadError(text)


def _is_on_broker(options: ReaderOptions, span: OffsetSpan, position: int) -> bool:
    """Whether the broker itself has the log from there on; a tiered store may answer late, and the broker with nothing."""
    first = _offset(options, span, _EARLIEST_LOCAL)
    return first is not None and first <= position


def _offset(options: ReaderOptions, span: OffsetSpan, wanted: int) -> int | None:
    """Asks the partition's leader, as others name it now."""
    topics = SourceTopics(replace(options, topics=TopicChoice(names=(span.topic,))))
    topics.look_up()
    target = TopicPartition(span.topic, span.partition)
    return topics.offsets({target: wanted})[target]


def _position_after_loss(
    options: ReaderOptions, span: OffsetSpan, position: int, *, is_sure: bool
) -> int:
    """Returns where to go on, behind offsets that are gone. Raises `DataLossError` if they must not be.

    A broker that did not notice that another leads now may have a shorter log: unless `is_sure`, `position` is tried again.
    """
    earliest = _offset(options, span, EARLIEST) or 0
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
