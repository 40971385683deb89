"""Rows of files as records: the sink's columns, from the columns that the settings name."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    NumericType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from echoless.pipeline.ingest.settings import IngestError, IngestSettings

_NESTED = (ArrayType, MapType, StructType)


def to_records(frame: DataFrame, settings: IngestSettings) -> DataFrame:
    """Selects the column `value`, and those of `key`, `partition` and `timestamp` that the settings ask for.

    Raises `IngestError` for a missing column.
    """
    columns = _JsonLines() if settings.format == "json" else _Table(frame)
    wanted = [_value(columns, settings).alias("value")]
    if settings.key_column is not None:
        wanted.append(columns.bytes_of(settings.key_column).alias("key"))
    if settings.partition_column is not None:
        wanted.append(columns.column(settings.partition_column).cast("int").alias("partition"))
    if settings.timestamp_column is not None:
        wanted.append(columns.timestamp_of(settings.timestamp_column).alias("timestamp"))
    return frame.select(*wanted)


def _value(columns: _Table | _JsonLines, settings: IngestSettings) -> Column:
    if settings.value_column is None:
        return columns.whole_row().cast("binary")
    return columns.bytes_of(settings.value_column)


class _Table:
    """Columns of a table, with names and types."""

    def __init__(self, frame: DataFrame) -> None:
        self._types = {one.name: one.dataType for one in frame.schema}

    def column(self, name: str) -> Column:
        self._type(name)
        return f.col(f"`{name.replace('`', '``')}`")

    def bytes_of(self, name: str) -> Column:
        """Returns bytes as they are, nested values as JSON, all others as text."""
        kind = self._type(name)
        if isinstance(kind, BinaryType):
            return self.column(name)
        text = f.to_json(self.column(name)) if isinstance(kind, _NESTED) else self.column(name)
        return text.cast("string").cast("binary")

    def timestamp_of(self, name: str) -> Column:
        kind = self._type(name)
        if isinstance(kind, NumericType):
            return f.timestamp_millis(self.column(name).cast("long"))
        if isinstance(kind, (TimestampType, TimestampNTZType)):
            return self.column(name)
        return self.column(name).cast("timestamp")

    def whole_row(self) -> Column:
        names = [self.column(name) for name in self._types]
        return f.to_json(f.struct(*names), {"ignoreNullFields": "false"})

    def _type(self, name: str) -> DataType:
        if name not in self._types:
            raise IngestError(f"there is no column {name}; there are {', '.join(self._types)}")
        return self._types[name]


class _JsonLines:
    """Lines of JSON, whose fields are looked up by name."""

    def column(self, name: str) -> Column:
        return f.get_json_object("value", f"$['{name}']")

    def bytes_of(self, name: str) -> Column:
        return self.column(name).cast("binary")

    def timestamp_of(self, name: str) -> Column:
        """Reads a timestamp from milliseconds or text."""
        text = self.column(name)
        is_number = text.rlike(r"^-?\d+$")
        return f.when(is_number, f.timestamp_millis(text.cast("long"))).otherwise(
            text.cast("timestamp")
        )

    def whole_row(self) -> Column:
        return f.col("value")
