"""Order of a task's rows that depends only on the rows.

For the data source, which cannot ask Spark to sort: all rows of the Spark partition are held in memory. The sink
for `foreachBatch` lets Spark sort, which spills to disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from echoless.pipeline.exactly_once.rows import NAMES

_HEADERS: Final = "headers"
_HEADER_TEXT: Final = "headers as text"


def sort_rows(batches: Iterable[Any], first: Sequence[str]) -> Iterator[Any]:
    """Sorts Arrow batches by the columns `first` and then by all others that are written."""
    kept = list(batches)
    if not kept:
        return
    table = pa.Table.from_batches(kept)
    others = [name for name in table.column_names if name.lower() in NAMES and name not in first]
    keys, table = _sortable([*first, *others], table)
    indexes = pc.sort_indices(table, sort_keys=[(key, "ascending") for key in keys])
    yield from table.take(indexes).to_batches()


def _sortable(names: Sequence[str], table: Any) -> tuple[list[str], Any]:
    """Returns the names of the sort keys, and the table with them.

    Arrow does not sort lists, so headers are sorted as text; columns of nulls are left out.
    """
    keys = []
    for name in names:
        column = table.column(name)
        if name.lower() == _HEADERS:
            texts = pa.array([repr(headers) for headers in column.to_pylist()], pa.string())
            table = table.append_column(_HEADER_TEXT, texts)
            keys.append(_HEADER_TEXT)
        elif not pa.types.is_null(column.type):
            keys.append(name)
    return keys, table
