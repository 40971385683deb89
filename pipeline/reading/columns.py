"""The columns of the reader: those of Spark's Kafka source, as Spark's types and as Arrow's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from echoless.pipeline.reading.errors import ReadOptionError

HEADERS: Final = "headers"
_TYPES: Final = {
    "key": ("binary", pa.binary()),
    "value": ("binary", pa.binary()),
    "topic": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "offset": ("bigint", pa.int64()),
    "timestamp": ("timestamp", pa.timestamp("us", "UTC")),
    "timestampType": ("int", pa.int32()),
    HEADERS: (
        "array<struct<key:string,value:binary>>",
        pa.list_(
            pa.field(
                "element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
            )
        ),
    ),
}
COLUMNS: Final = tuple(name for name in _TYPES if name != HEADERS)
"""Names of the columns that there are without `includeHeaders`."""


def ddl_of(names: Sequence[str]) -> str:
    """Returns the columns as Spark's schema."""
    return ", ".join(f"`{name}` {_TYPES[name][0]}" for name in names)


def check_schema(given: str, names: Sequence[str]) -> None:
    """Refuses a schema (`StructType.simpleString()`) other than these columns: Spark takes any that a user gives.

    Raises `ReadOptionError`.
    """
    own = ",".join(f"{name}:{_TYPES[name][0]}" for name in names)
    if given != f"struct<{own}>":
        raise ReadOptionError(
            f"the reader's columns are {own}; leave schema(...) out, choose some by the option columns, and convert in the query"
        )


def arrow_schema_of(names: Sequence[str]) -> Any:
    """Returns the columns as Arrow's schema: just what Spark makes of its own."""
    return pa.schema([pa.field(name, _TYPES[name][1]) for name in names])
