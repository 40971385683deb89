"""Files as a source of rows: their list, their columns, and a batch of them as a data frame.

Spark normally divides files by its settings and even its number of cores. Here the number of Spark partitions depends
on the files and the ingest's settings alone, so that a batch that is rerun on another machine is divided in the same
way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from echoless.pipeline.ingest.plan import FileBatch, SourceFile
from echoless.pipeline.ingest.settings import IngestError, IngestSettings

_WHOLE_FILE: Final = 2**62
_SPECIAL: Final = re.compile(r"([\\\[\]{}*?])")
_CSV: Final = {
    "header": "true",
    # A file whose columns are in another order is an error, and so is a row of another length.
    "enforceSchema": "false",
    "mode": "FAILFAST",
    # With only some columns in use, Spark would otherwise not see that a row is shorter: its value would be null.
    "columnPruning": "false",
}


def require_reader(session: SparkSession, file_format: str) -> None:
    """Checks that the running Spark reads the format. Raises `IngestError`."""
    if file_format != "avro":
        return
    try:
        session.read.format(file_format).schema("value string").load([])
    except AnalysisException as error:
        package = f"org.apache.spark:spark-avro_2.13:{session.version}"
        raise IngestError(
            f"this Spark does not read Avro: it needs {package}, by `spark-submit --packages`, or outside of it by "
            f"PYSPARK_SUBMIT_ARGS='--packages {package} pyspark-shell'"
        ) from error


def list_files(session: SparkSession, paths: Sequence[str]) -> list[SourceFile]:
    """Lists the files that paths name: files, directories with everything below them, or patterns.

    Names that begin with `_` or `.` are left out. Raises `IngestError`.
    """
    try:
        rows = (
            session.read.format("binaryFile")
            .option("recursiveFileLookup", "true")
            .load(list(paths))
            .select("path", "length", f.unix_millis("modificationTime"))
            .collect()
        )
    except AnalysisException as error:
        raise IngestError(str(error).splitlines()[0]) from error
    return [SourceFile(path=row[0], bytes=row[1], modified_ms=row[2]) for row in rows]


def list_again(session: SparkSession, batch: FileBatch) -> list[SourceFile]:
    """Lists the files of a batch as they are now. Raises `IngestError` if one is gone."""
    return list_files(session, _paths(batch))


def find_schema(session: SparkSession, settings: IngestSettings, batch: FileBatch) -> str:
    """Returns the columns of a batch's files as DDL; those of CSV are text, since only the header is read."""
    if settings.format == "json":
        return "value string"
    options = {**_defaults(settings), **settings.reader_options}
    reader = session.read.format(settings.format).options(**options)
    schema = reader.load(_paths(batch)).schema
    return ", ".join(
        f"`{one.name.replace('`', '``')}` {one.dataType.simpleString()}" for one in schema
    )


def read_batch(session: SparkSession, settings: IngestSettings, batch: FileBatch) -> DataFrame:
    """Opens the rows of a batch. Lines of JSON are read as text, since each is stored as it is."""
    split_bytes = _WHOLE_FILE if settings.in_order else settings.split_bytes
    session.conf.set("spark.sql.files.minPartitionNum", "1")
    session.conf.set("spark.sql.files.maxPartitionBytes", str(split_bytes))
    session.conf.set("spark.sql.files.openCostInBytes", str(min(split_bytes, 4 * 1024 * 1024)))
    paths = _paths(batch)
    reader = session.read.options(**{**_defaults(settings), **settings.reader_options})
    if settings.format == "json":
        return reader.format("text").load(paths).where(f.length(f.trim("value")) > 0)
    assert settings.schema is not None, "Ingest._begin records it before the first batch"
    return reader.format(settings.format).schema(settings.schema).load(paths)


def _paths(batch: FileBatch) -> list[str]:
    """Returns the paths, escaped: Spark treats every path as a pattern."""
    return [_SPECIAL.sub(r"\\\1", one.path) for one in batch.files]


def _defaults(settings: IngestSettings) -> dict[str, str]:
    return _CSV if settings.format == "csv" else {}
