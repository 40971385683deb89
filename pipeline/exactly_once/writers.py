"""The sink's writers for Spark's data source `echoless`, of streams and of jobs.

Spark passes a Python data source neither batch nor query; a task finds both among the local properties that Spark
sets for its own use. The number of Spark partitions of a batch is known only when all have been written (`commit`),
so a batch that is divided differently when it is rerun is detected late; the sink for `foreachBatch` refuses it
beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from echoless.pipeline.exactly_once.batch_record import BatchRecord
from echoless.pipeline.exactly_once.columns import check_columns
from echoless.pipeline.exactly_once.default_places import DefaultPlaces
from echoless.pipeline.exactly_once.ends import TaskReport, end_batch
from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.exactly_once.ledger import TaskLocation
from echoless.pipeline.exactly_once.ledger_identity import identified, open_files, placed
from echoless.pipeline.exactly_once.options import (
    CHECKPOINT_LOCATION,
    SinkOptions,
    read_options,
    store_options,
)
from echoless.pipeline.exactly_once.partition_writer import Attempted, write_partition
from echoless.pipeline.exactly_once.query_mode import (
    check_checkpoint,
    check_not_refreshed,
    check_options,
    check_reports,
)
from echoless.pipeline.exactly_once.row_order import sort_rows
from echoless.pipeline.exactly_once.store_settings import StoreSettings
from echoless.pipeline.exactly_once.stream_writer import StreamArrowWriter
from echoless.pipeline.frozen_imports import freeze_imports

QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"
BATCH_ID_PROPERTY: Final = "streaming.sql.batchId"
"""Internal names of Spark; `tests/pipeline/exactly_once/test_spark.py` notices when they change."""
LEDGER_DIRECTORY: Final = "echoless-ledger"
"""Directory of a stream's ledger in its checkpoint."""
STREAM_NAME: Final = "stream"
"""Sink name of a stream whose ledger is in its checkpoint."""


@dataclass
class TaskMessage(WriterCommitMessage):
    """Report of a task to the driver."""

    attempted: Attempted


class ExactlyOnceStreamWriter(StreamArrowWriter):
    """Writer of a stream, pickled with its options to every task."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._run = uuid4().hex

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        context = _task_context()
        batch_id = context.getLocalProperty(BATCH_ID_PROPERTY)
        query_id = context.getLocalProperty(QUERY_ID_PROPERTY)
        if not batch_id or not query_id:
            raise SinkError(
                f"Spark does not set {BATCH_ID_PROPERTY} and {QUERY_ID_PROPERTY} for its tasks: the sink "
                "does not know this version of Spark; use ExactlyOnceSink with foreachBatch"
            )
        options = self._options
        location = TaskLocation(
            options.name, query_id, int(batch_id), context.partitionId(), self._run
        )
        if not options.accepts_new_ledger:
            _record(options, location).check_not_lost(has_every_batch=True)
        return TaskMessage(_write(options, location, iterator))

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803  Spark's name
    ) -> None:
        check_reports(messages)
        _end(self._options, messages, batchId)
        freeze_imports("commit")


class ExactlyOnceJobWriter(DataSourceArrowWriter):
    """Writer of a job; the option `batchId` says which batch it is."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._run = uuid4().hex

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        options = self._options
        number = _task_context().partitionId()
        location = TaskLocation(options.name, "", options.batch_id, number, self._run)
        return TaskMessage(_write(options, location, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _end(self._options, messages, self._options.batch_id)


def job_writer(
    given: Mapping[str, str], schema: StructType, places: DefaultPlaces
) -> ExactlyOnceJobWriter:
    """Makes the writer of a job from the options as they are given. Raises `OptionError`, `SinkError`."""
    options = read_options(_plain(given), name=None, ledger=None)
    check_columns(schema, options)
    return ExactlyOnceJobWriter(identified(placed(options, places)))


def stream_writer(
    given: Mapping[str, str], schema: StructType, places: DefaultPlaces
) -> ExactlyOnceStreamWriter:
    """Makes the writer of a stream from the options as they are given. Raises `OptionError`, `SinkError`."""
    check_options(given)
    checkpoint = given.get(CHECKPOINT_LOCATION)
    if not checkpoint:
        checkpoint = places.checkpoint(given.get("queryName"))
    if checkpoint:
        checkpoint = places.resolved(checkpoint)
        settings = StoreSettings(store_options(given), places.stores.hadoop)
        check_checkpoint(checkpoint, settings)
    ledger = f"{checkpoint.rstrip('/')}/{LEDGER_DIRECTORY}" if checkpoint else None
    name = STREAM_NAME if ledger else None
    options = read_options(_plain(given), name=name, ledger=ledger)
    check_columns(schema, options)
    if checkpoint and options.ledger == ledger and not options.accepts_new_ledger:
        check_not_refreshed(checkpoint, LEDGER_DIRECTORY, settings)
    return ExactlyOnceStreamWriter(identified(placed(options, places)))


def _write(options: SinkOptions, location: TaskLocation, batches: Iterator[Any]) -> Attempted:
    if options.sort_columns is not None:
        batches = sort_rows(batches, options.sort_columns)
    return write_partition(options, location, batches)


def _end(options: SinkOptions, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
    """Records the ends of a batch whose tasks have all succeeded.

    Raises `SinkError` if the batch was divided differently before, has other rows, or has to run once more.
    """
    attempted = [one.attempted for one in messages if isinstance(one, TaskMessage)]
    if not attempted:
        BatchRecord(open_files(options), options.name, "", batch_id).note()
        return
    location = attempted[0].location
    record = _record(options, location)
    record.agree(len(messages), is_late=True)
    reports = [
        TaskReport(
            one.location,
            one.slot,
            one.end,
            one.is_deferred,
            one.written.rows,
            one.written.rows_found,
            one.costs,
            one.begins,
        )
        for one in attempted
        if one.slot is not None
    ]
    if end_batch(options, location, reports) is None:
        raise SinkError(
            f"sink {options.name}, batch {batch_id}: an earlier run was interrupted before all of its tasks had "
            "begun, and Spark numbers them otherwise now. All that had begun were found again, and the others "
            "have not been stored: start the query or job once more, and it stores them"
        )


def _record(options: SinkOptions, location: TaskLocation) -> BatchRecord:
    return BatchRecord(open_files(options), options.name, location.query_id, location.batch_id)


def _plain(options: Mapping[str, str]) -> dict[str, str]:
    return dict(options.items())


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark runs this in a task"
    return context
