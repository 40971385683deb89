"""Digest of a task's first rows, by which a later run of the batch recognises the task.

It covers the first rows of the first Arrow batch, which Spark delivers whole or not at all, so an attempt whose rows
are cut off has the same digest. Timestamps that the sink sets itself are not part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa

from echoless.pipeline.exactly_once.rows import NAMES, milliseconds

HEAD_ROWS: Final = 1000
"""Rows that the digest covers at most; fewer if the first Arrow batch has fewer."""
HEAD_BYTES: Final = 1024 * 1024
"""Bytes of keys and values after which no further row is covered."""


def head_digest(batch: Any) -> str:
    """Returns the digest of an Arrow batch's first rows, as 32 hexadecimal digits.

    Whether a text is a string or binary does not matter, nor whether a column of nulls is there.
    """
    columns = {
        name.lower(): batch.column(index).slice(0, HEAD_ROWS)
        for index, name in enumerate(batch.schema.names)
    }
    found = {name: _plain(name, columns[name]) for name in NAMES if name in columns}
    rows = _rows_covered(found, min(batch.num_rows, HEAD_ROWS))
    digest = hashlib.blake2b(digest_size=16)
    for name in NAMES:
        for cell in found.get(name, [None] * rows)[:rows]:
            digest.update(_encoded(cell))
        digest.update(b"/")
    return digest.hexdigest()


def _plain(name: str, column: Any) -> list[Any]:
    """Returns the cells as bytes, integers or lists; timestamps as ms."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return list(milliseconds(column).to_pylist())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return list(column.cast(pa.large_binary()).to_pylist())
    cells = column.to_pylist()
    return [one or None for one in cells] if name == "headers" else list(cells)


def _rows_covered(found: dict[str, list[Any]], rows: int) -> int:
    """Returns the number of rows whose keys and values come before the limit is passed."""
    sizes = accumulate(_sizes(found, rows))
    return next((row for row, size in enumerate(sizes, 1) if size >= HEAD_BYTES), rows)


def _sizes(found: dict[str, list[Any]], rows: int) -> Iterator[int]:
    nothing = [None] * rows
    for key, value in zip(found.get("key", nothing), found.get("value", nothing), strict=True):
        yield len(key or b"") + len(value or b"")


def _encoded(cell: Any) -> bytes:
    if cell is None:
        return b"-"
    if isinstance(cell, bytes):
        return b"%d:%b" % (len(cell), cell)
    text = repr(cell).encode()
    return b"%d:%b" % (len(text), text)
