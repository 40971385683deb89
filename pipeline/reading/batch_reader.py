"""The reader of a job: offsets are fixed when the job is planned, and tasks read their spans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from echoless.pipeline.reading.bounds import LATEST, Offsets, check_times, resolve
from echoless.pipeline.reading.errors import DataLossError, ReadOptionError
from echoless.pipeline.reading.options import ReaderOptions
from echoless.pipeline.reading.source_topics import PartitionGoneError, SourceTopics
from echoless.pipeline.reading.span import OffsetSpan, split_spans
from echoless.pipeline.reading.span_rows import read_span


class TopicReader(DataSourceReader):
    """Reader of a job, pickled with its options to every task."""

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        spans = plan_job(self._options)
        options = self._options
        parts = split_spans(
            spans, tasks_min=options.tasks_min, records_max=options.task_records_max
        )
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        span = partition.value
        if isinstance(span, OffsetSpan):  # Spark makes one of None where there is no partition
            yield from read_span(self._options, span)


def plan_job(options: ReaderOptions) -> list[OffsetSpan]:
    """Fixes the offsets of each partition. Raises `ReadError`, `DataLossError`."""
    try:
        return _planned(options)
    except PartitionGoneError:
        if options.topics.pattern is None:
            raise
    return _planned(options)  # a topic of the pattern was deleted after it was found


def _planned(options: ReaderOptions) -> list[OffsetSpan]:
    topics = SourceTopics(options)
    found = topics.find()
    partitions = topics.partitions()
    check_times(options.start, options.end)
    starts = resolve(options.start, partitions, topics.offsets, takes_latest=options.starts_late)
    ends = resolve(options.end, partitions, topics.offsets, is_end=True)
    _check_order(options, starts, ends)
    if options.end.is_explicit:
        ends = _within_log(options, ends, topics)
    return [
        OffsetSpan(one.topic, one.partition, starts[one], ends[one], found[one.topic].id_text)
        for one in partitions
    ]


def _check_order(options: ReaderOptions, starts: Offsets, ends: Offsets) -> None:
    for one, start in starts.items():
        if start > ends[one]:
            raise ReadOptionError(
                f"options {options.start.option} and {options.end.option}: {one} would start at {start} and end at {ends[one]}"
            )


def _within_log(options: ReaderOptions, ends: Offsets, topics: SourceTopics) -> Offsets:
    """Checks ends that were given as numbers: a task would wait for records that nobody has written."""
    latest = topics.offsets(dict.fromkeys(ends, LATEST))
    within = {one: min(end, latest[one] or 0) for one, end in ends.items()}
    for one, end in ends.items():
        if options.fails_on_data_loss and end > within[one]:
            raise DataLossError(
                f"option endingOffsets: {one} would end at {end}, and the log ends at {within[one]}; "
                "-1 is its end, whatever it is; failOnDataLoss=false reads what there is"
            )
    return within
