"""Named tuples as Arrow tables, and vectorised comparison of neighbouring rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
Row = TypeVar("Row", bound=NamedTuple)

_TYPES: Final[dict[object, tuple[str, pa.DataType]]] = {
    int: ("long", pa.int64()),
    int | None: ("long", pa.int64()),
    str: ("string", pa.string()),
    str | None: ("string", pa.string()),
}


def ddl_of(row_type: type[NamedTuple]) -> str:
    """Returns the columns of a named tuple of integers and strings as DDL for Spark."""
    return ", ".join(f"{n} {_TYPES[hint][0]}" for n, hint in get_type_hints(row_type).items())


def schema_of(row_type: type[NamedTuple]) -> pa.Schema:
    """Returns the columns of a named tuple as a schema for Arrow."""
    return pa.schema([(n, _TYPES[hint][1]) for n, hint in get_type_hints(row_type).items()])


def rows_of(batch: pa.RecordBatch, row_type: type[Row]) -> Iterator[Row]:
    """Yields the rows as named tuples; columns that the tuple lacks are left out."""
    columns = [batch.column(name).to_pylist() for name in get_type_hints(row_type)]
    return map(row_type._make, zip(*columns, strict=True))


def batch_of(rows: Sequence[Row], row_type: type[Row]) -> pa.RecordBatch:
    """Makes an Arrow batch of named tuples: the inverse of `rows_of`."""
    schema = schema_of(row_type)
    columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def integers(batch: pa.RecordBatch, name: str) -> Integers:
    """Returns a column of integers, -1 for null."""
    values: Integers = batch.column(name).fill_null(-1).to_numpy().astype(np.int64)
    return values


def booleans(batch: pa.RecordBatch, name: str) -> Flags:
    """Returns a column of booleans without nulls."""
    flags: Flags = batch.column(name).to_numpy(zero_copy_only=False).astype(np.bool_)
    return flags


def starts_of(batch: pa.RecordBatch, names: Sequence[str]) -> Flags:
    """Marks the rows that differ from the one before in one of the columns, and the first."""
    differs = np.zeros(batch.num_rows, np.bool_)
    for name in names:
        column = batch.column(name)
        if pa.types.is_string(column.type):
            column = column.dictionary_encode().indices
        values = column.fill_null(-1).to_numpy()
        differs[1:] |= values[1:] != values[:-1]
    differs[:1] = True
    return differs
