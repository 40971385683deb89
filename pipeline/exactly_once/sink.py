"""The sink for `foreachBatch`, and for jobs that are not streams.

    sink = ExactlyOnceSink("broker:9092", name="orders", ledger="/data/ledgers", topic="orders")
    query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", ...).start()

Every task writes its own Spark partition (`partition_writer.py`). Here is what concerns the batch as a whole: the
number of its Spark partitions, because a row that moves from one to another in a rerun would be stored by both.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark import SparkContext, TaskContext
from pyspark.sql import DataFrame, Row, SparkSession

from echoless.pipeline.exactly_once.batch_metrics import BatchMetrics, TaskCosts
from echoless.pipeline.exactly_once.batch_record import BatchRecord
from echoless.pipeline.exactly_once.batch_tasks import SlotName
from echoless.pipeline.exactly_once.columns import check_columns
from echoless.pipeline.exactly_once.default_places import (
    DefaultPlaces,
    default_places,
    is_connect,
)
from echoless.pipeline.exactly_once.ends import DIVISION, TaskReport, end_batch
from echoless.pipeline.exactly_once.entries import End, TaskOrigin, decode_entry, encode_entry
from echoless.pipeline.exactly_once.errors import ReplayMismatchError, SinkError
from echoless.pipeline.exactly_once.ledger import TaskLocation
from echoless.pipeline.exactly_once.ledger_identity import identified, open_files, placed
from echoless.pipeline.exactly_once.options import (
    ALL_COLUMNS,
    BOOTSTRAP_SERVERS,
    SORT_WITHIN_PARTITIONS,
    TOPIC,
    SinkOptions,
    read_options,
    without_effect,
)
from echoless.pipeline.exactly_once.partition_writer import Attempted, Written, write_partition
from echoless.pipeline.exactly_once.rows import NAMES
from echoless.pipeline.exactly_once.writers import QUERY_ID_PROPERTY

_ATTEMPTED: Final = (
    "spark_partition int, rows long, rows_found long, end binary, lane int, origin_run string, "
    "origin_partition int, digest string, occurrence int, is_deferred boolean, ledger_requests int, broker_wait_s double, "
    "begins int"
)
_LOG: Final = logging.getLogger(__name__)
_RUNS_MAX: Final = 2
"""Runs of a batch in one call: in the second, tasks that were deferred in the first may begin."""


class ExactlyOnceSink:
    """The sink for `foreachBatch`: stores each row of each batch once, however often the batch is run (`docs/sink.md`)."""

    def __init__(
        self,
        options: str | Mapping[str, str],
        *,
        name: str | None = None,
        ledger: str | None = None,
        topic: str | None = None,
        sort_within_partitions: bool | Sequence[str] = False,
    ) -> None:
        """`options`: the bootstrap servers, or the data source's options (`docs/sink.md`). Raises `OptionError`.

        `name`: the sink's name in the ledger, the same whenever the query or job is started again. `ledger`: path or
        URI of the ledger, which all machines share. `topic`: the topic of all rows; None: each row's column `topic`.

        `sort_within_partitions`: whether to sort the rows of each Spark partition, so that every run has them in the
        same order; or the columns to sort by first.
        """
        if isinstance(options, str):
            options = {BOOTSTRAP_SERVERS: options}
        if topic is not None:
            options = {**options, TOPIC: topic}
        if sort_within_partitions is not False:
            columns = [ALL_COLUMNS] if sort_within_partitions is True else sort_within_partitions
            options = {**options, SORT_WITHIN_PARTITIONS: ",".join(columns)}
        ignored = ", ".join(without_effect(options))
        if ignored:
            _say_once(ignored)
        self.options = read_options(options, name=name, ledger=ledger)
        """The parsed options."""
        self.metrics: BatchMetrics | None = None
        """Figures of the last batch that this object has written."""
        self._places: tuple[weakref.ref[SparkContext], DefaultPlaces] | None = None
        """Additions of a Spark context to paths: read once, by some hundred calls into the JVM."""

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Writes one batch; `foreachBatch` calls this."""
        self.write(frame, batch_id)

    def write(self, frame: DataFrame, batch_id: int = 0) -> list[Written]:
        """Writes one batch; written again with the same `batch_id` and rows, it stores nothing.

        Returns a report for each Spark partition. Raises `SinkError`, before anything is sent, if the batch cannot
        be written, and Spark's error if a task fails.
        """
        if is_connect(frame):
            raise SinkError(
                "ExactlyOnceSink needs a session in this process, and this is Spark Connect: register(spark), and "
                'writeStream.format("echoless"); or within foreachBatch register(frame.sparkSession), and '
                'frame.write.format("echoless") with the option batchId'
            )
        check_columns(frame.schema, self.options)
        context = frame.sparkSession.sparkContext
        options = identified(placed(self.options, self._places_of(frame.sparkSession)))
        query_id = context.getLocalProperty(QUERY_ID_PROPERTY) or ""
        rows = self._ordered(frame)
        record = BatchRecord(open_files(options), options.name, query_id, batch_id)
        if not options.accepts_new_ledger:
            record.check_not_lost(has_every_batch=False)
        for _ in range(_RUNS_MAX):
            location = TaskLocation(options.name, query_id, batch_id, 0, run=uuid4().hex)
            written = rows.mapInArrow(_task(options, location), _ATTEMPTED)
            # Counting the partitions makes the plan and runs the shuffles; `collect` continues from there.
            spark_partitions = written.rdd.getNumPartitions()
            record.agree(spark_partitions)
            attempted = written.collect()
            metrics = end_batch(options, location, list(_reports(attempted, location)))
            if metrics is not None:
                self.metrics = metrics
                return [Written(*row[:3]) for row in attempted]
        raise ReplayMismatchError(
            f"sink {options.name}, batch {batch_id}: the rows are others whenever they are computed. {DIVISION}"
        )

    def _places_of(self, session: SparkSession) -> DefaultPlaces:
        context = session.sparkContext
        if self._places is None or self._places[0]() is not context:
            self._places = weakref.ref(context), default_places(session)
        return self._places[1]

    def _ordered(self, frame: DataFrame) -> DataFrame:
        wanted = [column for column in frame.columns if column.lower() in NAMES]
        first = self.options.sort_columns
        if first is not None:
            others = [column for column in wanted if column not in first]
            frame = frame.sortWithinPartitions(*first, *others)
        return frame.select(*(f"`{column}`" for column in wanted))


@cache
def _say_once(ignored: str) -> None:
    _LOG.warning("options without effect in the exactly-once sink: %s", ignored)


def _task(options: SinkOptions, location: TaskLocation) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def write(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None, "Spark runs this in a task"
        own = location._replace(spark_partition=context.partitionId())
        yield pa.RecordBatch.from_pylist(
            [_row(write_partition(options, own, batches))], _ARROW_ATTEMPTED
        )

    return write


def _row(attempted: Attempted) -> dict[str, Any]:
    """Returns the row in which a task reports to the driver."""
    written, end, location, slot, is_deferred, costs, begins = attempted
    origin = location.task_origin
    return {
        **written._asdict(),
        "end": None if end is None else encode_entry(end),
        "lane": location.lane_number,
        "origin_run": origin.run,
        "origin_partition": origin.spark_partition,
        "digest": None if slot is None else slot.digest,
        "occurrence": None if slot is None else slot.occurrence,
        "is_deferred": is_deferred,
        **costs._asdict(),
        "begins": begins,
    }


def _reports(attempted: list[Row], location: TaskLocation) -> Iterator[TaskReport]:
    """Yields the reports of tasks that had rows."""
    for row in attempted:
        if row.digest is None:
            continue
        end = None if row.end is None else decode_entry(bytes(row.end))
        assert end is None or isinstance(end, End)
        own = location._replace(
            spark_partition=row.spark_partition,
            lane=row.lane,
            origin=TaskOrigin(row.origin_run, row.origin_partition),
        )
        yield TaskReport(
            own,
            SlotName(row.digest, row.occurrence),
            end,
            row.is_deferred,
            row.rows,
            row.rows_found,
            TaskCosts(row.ledger_requests, row.broker_wait_s),
            row.begins,
        )


_ARROW_ATTEMPTED: Final = pa.schema(
    [
        ("spark_partition", pa.int32()),
        ("rows", pa.int64()),
        ("rows_found", pa.int64()),
        ("end", pa.binary()),
        ("lane", pa.int32()),
        ("origin_run", pa.string()),
        ("origin_partition", pa.int32()),
        ("digest", pa.string()),
        ("occurrence", pa.int32()),
        ("is_deferred", pa.bool_()),
        ("ledger_requests", pa.int32()),
        ("broker_wait_s", pa.float64()),
        ("begins", pa.int32()),
    ]
)
