"""The first tables of an audit, written as Parquet by the tasks that read the logs.

A row that goes through the JVM costs more than everything else that is done for a batch, so a task writes the
batches, runs and extents of its part of the log itself, and hands no row to Spark. A file gets its name when it is
whole: a task that fails, or runs twice, leaves nothing that counts twice. Called by `audit.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from echoless.pipeline.audit.arrow_rows import ddl_of
from echoless.pipeline.audit.extents import EXTENT_SCHEMA, Extent, extents_of_batches
from echoless.pipeline.audit.runs import RUN_SCHEMA, SequenceRun, runs_of_batches
from echoless.pipeline.audit.transaction_parts import (
    PART_SCHEMA,
    TransactionPart,
    parts_of_batches,
)
from echoless.pipeline.batches.batch_columns import ARROW_SCHEMA, DDL
from echoless.pipeline.batches.batch_source import BatchSource

_ROWS_AT_ONCE: Final = 65_536
"""Batches that a task merges, and writes, at once."""


class _Table(NamedTuple):
    ddl: str
    schema: pa.Schema
    rows_of: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


TABLES: Final = {
    "batches": _Table(DDL, ARROW_SCHEMA, iter),
    "runs": _Table(ddl_of(SequenceRun), RUN_SCHEMA, runs_of_batches),
    "extents": _Table(ddl_of(Extent), EXTENT_SCHEMA, extents_of_batches),
    "transaction_parts": _Table(ddl_of(TransactionPart), PART_SCHEMA, parts_of_batches),
}


class NoDirectoryError(Exception):
    """A worker does not see the directory of the tables."""


def scan(session: SparkSession, source: Mapping[str, str], directory: Path) -> None:
    """Reads the logs once and writes `TABLES` below `directory`, which all workers must share."""
    reader = BatchSource(dict(source)).reader(StructType())
    parts = [*enumerate(reader.partitions())]
    for name in TABLES:
        table_path(directory, name).mkdir(parents=True)
    tasks = session.sparkContext.parallelize(parts, max(len(parts), 1))
    tasks.foreach(partial(write_part, reader, directory))


def table_path(directory: Path, name: str) -> Path:
    """Returns where a table is: a directory of Parquet files."""
    return directory / f"{name}.parquet"


def write_part(
    reader: DataSourceReader, directory: Path, numbered: tuple[int, InputPartition]
) -> None:
    """Writes what one task reads, and nothing if it fails. Raises `NoDirectoryError`, `OSError`."""
    number, part = numbered
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(_new_file(table_path(directory, name), number, table.schema))
            for name, table in TABLES.items()
        }
        for batch in _joined(reader.read(part)):
            for name, table in TABLES.items():
                for rows in table.rows_of([batch]):
                    writers[name].write_batch(rows)


@contextmanager
def _new_file(directory: Path, number: int, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Opens a file that has its name once the block has ended without an error."""
    if not directory.is_dir():
        raise NoDirectoryError(f"{directory}: a worker does not see it; --output must be shared")
    path = directory / f"part-{number:05d}.parquet"
    unfinished = directory / f".{path.name}.{uuid4().hex}"  # readers skip names with a dot
    strings = [field.name for field in schema if pa.types.is_string(field.type)]
    try:
        with pq.ParquetWriter(unfinished, schema, use_dictionary=strings) as writer:
            yield writer
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Joins batches until they have `_ROWS_AT_ONCE` rows or more."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS_AT_ONCE:
            yield pa.concat_batches(waiting)
            waiting, rows = [], 0
    if rows:
        yield pa.concat_batches(waiting)
