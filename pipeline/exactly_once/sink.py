"""The sink for `foreachBatch`, and for jobs that are not streams.

    sink = ExactlyOnceSink("broker:9092", name="orders", ledger="/data/ledgers", topic="orders")
    query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", ...).start()

Every task writes its own Spark partition (`partition_writer.py`). Here is what concerns the batch as a whole: the
number of its Spark partitions, because a row that moves from one to another in a rerun would be stored by both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row

from echoless.pipeline.exactly_once.batch_record import BatchRecord
from echoless.pipeline.exactly_once.columns import check_columns
from echoless.pipeline.exactly_once.data_source import QUERY_ID_PROPERTY
from echoless.pipeline.exactly_once.ends import record_ends
from echoless.pipeline.exactly_once.entries import End, decode_entry, encode_entry
from echoless.pipeline.exactly_once.ledger import TaskLocation
from echoless.pipeline.exactly_once.ledger_identity import identified, open_files
from echoless.pipeline.exactly_once.options import (
    ALL_COLUMNS,
    BOOTSTRAP_SERVERS,
    SORT_WITHIN_PARTITIONS,
    TOPIC,
    SinkOptions,
    read_options,
)
from echoless.pipeline.exactly_once.partition_writer import Written, write_partition
from echoless.pipeline.exactly_once.rows import NAMES

_ATTEMPTED: Final = "spark_partition int, rows long, rows_found long, end binary"


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
        self.options = read_options(options, name=name, ledger=ledger)
        """The parsed options."""

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Writes one batch; `foreachBatch` calls this."""
        self.write(frame, batch_id)

    def write(self, frame: DataFrame, batch_id: int = 0) -> list[Written]:
        """Writes one batch; written again with the same `batch_id` and rows, it stores nothing.

        Returns a report for each Spark partition. Raises `SinkError`, before anything is sent, if the batch cannot
        be written, and Spark's error if a task fails.
        """
        check_columns(frame.schema, self.options)
        context = frame.sparkSession.sparkContext
        options = identified(self.options)
        query_id = context.getLocalProperty(QUERY_ID_PROPERTY) or ""
        rows = self._ordered(frame)
        written = rows.mapInArrow(_task(options, query_id, batch_id), _ATTEMPTED)
        # Counting the partitions makes the plan and runs the shuffles; `collect` continues from there.
        spark_partitions = written.rdd.getNumPartitions()
        record = BatchRecord(open_files(options), options.name, query_id, batch_id)
        record.agree(spark_partitions)
        attempted = written.collect()
        record_ends(options, _ends(attempted, TaskLocation(options.name, query_id, batch_id, 0)))
        return [Written(*row[:3]) for row in attempted]

    def _ordered(self, frame: DataFrame) -> DataFrame:
        wanted = [column for column in frame.columns if column.lower() in NAMES]
        first = self.options.sort_columns
        if first is not None:
            others = [column for column in wanted if column not in first]
            frame = frame.sortWithinPartitions(*first, *others)
        return frame.select(*(f"`{column}`" for column in wanted))


def _task(
    options: SinkOptions, query_id: str, batch_id: int
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def write(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None, "Spark runs this in a task"
        location = TaskLocation(options.name, query_id, batch_id, context.partitionId())
        written, end = write_partition(options, location, batches)
        row = {**written._asdict(), "end": None if end is None else encode_entry(end)}
        yield pa.RecordBatch.from_pylist([row], _ARROW_ATTEMPTED)

    return write


def _ends(attempted: list[Row], location: TaskLocation) -> Iterator[tuple[TaskLocation, End]]:
    for spark_partition, _, _, text in attempted:
        if text is not None:
            end = decode_entry(bytes(text))
            assert isinstance(end, End)
            yield location._replace(spark_partition=spark_partition), end


_ARROW_ATTEMPTED: Final = pa.schema(
    [
        ("spark_partition", pa.int32()),
        ("rows", pa.int64()),
        ("rows_found", pa.int64()),
        ("end", pa.binary()),
    ]
)
