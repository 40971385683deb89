"""Columns that a data frame must have, checked before anything runs."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from echoless.pipeline.exactly_once.errors import OptionError
from echoless.pipeline.exactly_once.options import SORT_WITHIN_PARTITIONS, SinkOptions

_TEXT: Final = (StringType, BinaryType)
_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": (StringType,),
    "partition": (IntegerType, LongType),
    "headers": (ArrayType,),
    "timestamp": (TimestampType, TimestampNTZType, LongType),
}
_HEADER_FIELDS: Final = {"key": StringType, "value": BinaryType}


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Checks names and types of the columns. Raises `OptionError`."""
    found = {field.name.lower(): field.dataType for field in schema.fields}
    if "value" not in found:
        raise OptionError("the rows need a column value")
    if options.topic is None and "topic" not in found:
        raise OptionError("the rows need a column topic, or the sink the option topic")
    for name, types in _TYPES.items():
        kind = found.get(name)
        if kind is not None and not isinstance(kind, types):
            names = " or ".join(one.typeName() for one in types)
            raise OptionError(f"column {name} is {kind.simpleString()}, and has to be {names}")
    for name in options.sort_columns or ():
        if name not in schema.names:
            raise OptionError(f"option {SORT_WITHIN_PARTITIONS}: there is no column {name}")
    headers = found.get("headers")
    if isinstance(headers, ArrayType):
        _check_headers(headers)


def _check_headers(headers: ArrayType) -> None:
    element = headers.elementType
    if isinstance(element, StructType):
        fields = {field.name: type(field.dataType) for field in element.fields}
        if fields == _HEADER_FIELDS:
            return
    raise OptionError(
        f"column headers is {headers.simpleString()}, and has to be "
        "array<struct<key:string,value:binary>>"
    )
