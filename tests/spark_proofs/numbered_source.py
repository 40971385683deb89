"""The source of a run: Parquet files of numbered records, and what each number promises.

A record is identified by its number. Source s has the numbers from `first_number(s)` on, ascending
over its files; the number also determines the target partition. So a target that holds every number
once, and those of one source ascending in each partition, has kept the promise.

A batch of the query takes the next file of every source, and one file is one Spark partition, so
that a replay divides the rows as before. A driver that ends after Spark's file source has noted a
batch's files, and before the query has noted the batch, leaves them to the next one: it has two
files of every source then, whose tasks run at the same time.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SOURCES: Final = 4
PARTITIONS: Final = 3
"""Partitions of the target: each source writes to all of them."""
NUMBERS_PER_SOURCE: Final = 100_000_000
VALUE_BYTES: Final = 100
"""The number, eight bytes, and filler."""
_FIRST_FILE_S: Final = 1_763_685_000
SCHEMA: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
    ]
)


def first_number(source: int) -> int:
    return source * NUMBERS_PER_SOURCE


def sources_of(numbers: np.ndarray) -> np.ndarray:
    return numbers // NUMBERS_PER_SOURCE


def partitions_of(numbers: np.ndarray) -> np.ndarray:
    """The target partition of each number."""
    return numbers % PARTITIONS


def number_of(value: bytes) -> int:
    """The number of a stored record."""
    return int.from_bytes(value[:8], "big")


def write_source(directory: Path, *, batches: int, rows_per_file: int) -> int:
    """Writes one file for each source and batch; returns the number of records."""
    directory.mkdir(parents=True)
    for batch in range(batches):
        for source in range(SOURCES):
            begin = first_number(source) + batch * rows_per_file
            path = directory / f"batch-{batch:05d}-source-{source}.parquet"
            pq.write_table(_rows(np.arange(begin, begin + rows_per_file)), path)
            # Spark takes the oldest files first.
            time_s = _FIRST_FILE_S + batch * SOURCES + source
            os.utime(path, (time_s, time_s))
    return batches * SOURCES * rows_per_file


def batches_of_files(checkpoint: Path, files: int) -> np.ndarray:
    """The batch that took the n-th file of every source, for `files` files, from 0 on.

    Reads the offsets that Spark keeps in the checkpoint; their last line has the number of the file
    source's last entry in the batch, and each entry is one file of every source.
    """
    offsets = [path for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal()]
    ends = sorted(json.loads(path.read_text().splitlines()[-1])["logOffset"] for path in offsets)
    return np.searchsorted(np.array(ends, np.int64), np.arange(files))


def _rows(numbers: np.ndarray) -> pa.Table:
    count = len(numbers)
    keys = numbers.astype(">i8").view(np.uint8).reshape(count, 8)
    values = np.zeros((count, VALUE_BYTES), np.uint8)
    values[:, :8] = keys
    return pa.table(
        [
            pa.array(numbers),
            _binary(np.ascontiguousarray(keys)),
            _binary(values),
            pa.array(partitions_of(numbers).astype(np.int32)),
        ],
        SCHEMA,
    )


def _binary(rows: np.ndarray) -> pa.Array:
    """One value for each row of a byte matrix."""
    count, size = rows.shape
    ends = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(rows)])
