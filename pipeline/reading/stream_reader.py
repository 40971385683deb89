"""The reader of a stream: the driver decides how far a micro-batch goes, and tasks read their spans.

Spark keeps the end of each micro-batch in the checkpoint before it runs. The tasks follow from two such ends and the options alone,
without a request: a micro-batch that runs again has the same tasks in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from echoless.pipeline.reading import spark_admission
from echoless.pipeline.reading.batch_limits import TriggerDelay, limited_ends
from echoless.pipeline.reading.bounds import resolve
from echoless.pipeline.reading.connections import close_kept
from echoless.pipeline.reading.errors import ReadOptionError
from echoless.pipeline.reading.options import ReaderOptions
from echoless.pipeline.reading.source_topics import SourceTopics
from echoless.pipeline.reading.span import OffsetSpan, split_spans
from echoless.pipeline.reading.span_rows import read_span
from echoless.pipeline.reading.spark_admission import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from echoless.pipeline.reading.stream_ends import (
    LogEnds,
    NextStretch,
    StreamEnds,
)
from echoless.pipeline.reading.stream_offsets import StreamOffsets, parse_stream_offsets


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a stream. One lives on the driver as long as the query; tasks have copies, and only call `read`."""

    def __init__(self, options: ReaderOptions) -> None:
        if options.offsets_max is not None and not spark_admission.has_admission_control:
            raise ReadOptionError(
                "option maxOffsetsPerTrigger: it needs PySpark 4.2; this one has no admission control, and trigger(availableNow=True) "
                "would end after so many offsets in silence. Leave it out (a task's memory does not depend on how much it reads, and "
                "maxRecordsPerPartition makes more tasks), or take PySpark 4.2"
            )
        self._options = options
        self._target: LogEnds | None = None
        """Ends that `trigger(availableNow=True)` reads up to."""
        self._seen: LogEnds | None = None
        self._planned: dict[str, Any] | None = None
        """End of the last micro-batch, or the start of the first; PySpark 4.0 and 4.1 do not pass it to `latestOffset`."""

    @cached_property
    def _ends(self) -> StreamEnds:
        return StreamEnds(self._options)

    @cached_property
    def _delay(self) -> TriggerDelay:
        return TriggerDelay(self._options.offsets_min, self._options.trigger_delay_s)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        options = self._options
        topics = SourceTopics(options)
        found = topics.find()
        starts = resolve(
            options.start, topics.partitions(), topics.offsets, takes_latest=options.starts_late
        )
        ids = {name: topic.id_text for name, topic in found.items() if topic.id_text is not None}
        self._planned = StreamOffsets(starts, ids).as_json()
        return self._planned

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        options = self._options
        if options.offsets_max is not None:
            return ReadMaxRows(options.offsets_max)
        if options.offsets_min is not None:
            return ReadMinRows(options.offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        self._target = self._seen = self._ends.ask()

    def latestOffset(  # noqa: N802  Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Returns the end of the next micro-batch; `start` if there is nothing, or too little, to read."""
        begun = start if start is not None else self._planned
        if begun is None:
            begun = self.initialOffset()
        if self._target is None:
            self._seen = self._ends.ask()
        found = self._target or self._seen
        assert found is not None, "one of them was asked for"
        at = parse_stream_offsets(begun)
        certain = self._ends.made_sure(at, found)
        if self._target is not None:
            self._target = certain
        stretch = self._ends.stretch(at, certain)
        if self._waits(stretch, limit):
            return begun
        ends = stretch.ends
        if isinstance(limit, ReadMaxRows):
            ends = limited_ends(stretch.starts, ends, limit.max_rows)
        return StreamOffsets(ends, stretch.ids, stretch.firsts).as_json()

    def _waits(self, stretch: NextStretch, limit: ReadLimit | None) -> bool:
        """Whether there is nothing to read, or too little."""
        if stretch.is_shorter:
            return False
        if stretch.size == 0:
            return True
        is_all = isinstance(limit, ReadAllAvailable) or self._target is not None
        return not is_all and self._delay.holds(stretch.size)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  Spark's name
        """Returns the ends of the logs, for the progress of the query."""
        seen = self._seen
        return None if seen is None else StreamOffsets(seen.ends, seen.ids).as_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._planned = end
        options = self._options
        parts = split_spans(
            parse_stream_offsets(start).spans_to(parse_stream_offsets(end)),
            tasks_min=options.tasks_min,
            records_max=options.task_records_max,
        )
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        span = partition.value
        if isinstance(span, OffsetSpan):
            yield from read_span(self._options, span)

    def stop(self) -> None:
        close_kept()
