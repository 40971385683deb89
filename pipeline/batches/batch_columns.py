"""Columns of a table with one row for each batch of a log, and their values from batch headers.

Headers are decoded many at a time with numpy; the layout is that of `protocol/record_batch.py`, from which
the types here are derived.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from echoless.protocol.record_batch import (
    BATCH_HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
)
from echoless.protocol.sequence import NO_SEQUENCE, SEQUENCE_MAX

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Headers = npt.NDArray[np.void]
"""Array with one `HEADER` for each batch."""

_NUMPY_TYPES: Final = {"q": ">i8", "i": ">i4", "I": ">u4", "h": ">i2", "b": ">i1"}
HEADER: Final = np.dtype(
    [
        (name, _NUMPY_TYPES[code])
        for name, code in zip(BatchHeader._fields, BATCH_HEADER.format[1:], strict=True)
    ]
)
assert HEADER.itemsize == HEADER_SIZE

_COLUMNS: Final = {
    "replica": "string",  # the data directory or cluster that was read
    "topic": "string",
    "partition": "int",
    "base_offset": "long",
    "last_offset": "long",
    "leader_epoch": "int",
    "producer_id": "long",  # negative: not idempotent
    "producer_epoch": "int",
    "base_sequence": "int",  # -1: none
    "last_sequence": "int",
    "count": "int",  # of records, by the header
    "base_timestamp": "long",  # ms; -1: none
    "max_timestamp": "long",  # ms; -1: none
    "attributes": "int",
    "marker": "int",  # of a transaction: 0 ABORT, 1 COMMIT; null: the batch is no marker
    "crc": "long",  # by the header
    "crc_ok": "boolean",  # whether it matches the bytes
    "bytes": "long",  # of the whole batch with its header
    "file": "string",  # relative to the data directory; null for a cluster
    "position": "long",  # of the batch's first byte in the file; null for a cluster
    "damage": "string",  # why these bytes are not a batch; all numbers but bytes are null then
}
DDL: Final = ", ".join(f"{name} {type_name}" for name, type_name in _COLUMNS.items())
_ARROW_TYPES: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
}
ARROW_SCHEMA: Final = pa.schema([(n, _ARROW_TYPES[t]) for n, t in _COLUMNS.items()])


def decode_headers(buffer: Buffer, positions: Integers) -> Headers:
    """Decodes the headers of the batches that begin at `positions`; each needs its 61 bytes."""
    if not len(positions):
        return np.empty(0, HEADER)
    # A header seen from every byte: numpy then copies 61 bytes for each position, and looks up no byte by itself.
    everywhere = np.ndarray(len(buffer) - HEADER_SIZE + 1, HEADER, buffer, strides=(1,))
    headers: Headers = everywhere[positions]
    return headers


def last_sequences(headers: Headers) -> Integers:
    """Computes `BatchHeader.last_sequence` for all rows at once."""
    base = headers["base_sequence"].astype(np.int64)
    last = (base + headers["last_offset_delta"]) & SEQUENCE_MAX
    return np.where(base < 0, NO_SEQUENCE, last)


def header_columns(headers: Headers) -> dict[str, npt.NDArray[np.generic]]:
    """Returns the columns that follow from the header alone, by name."""
    base_offset = headers["base_offset"].astype(np.int64)
    same = ("producer_id", "producer_epoch", "base_sequence", "base_timestamp", "max_timestamp")
    return {
        **{name: _native(headers, name) for name in (*same, "attributes", "crc")},
        "base_offset": base_offset,
        "last_offset": base_offset + headers["last_offset_delta"],
        "leader_epoch": _native(headers, "partition_leader_epoch"),
        "last_sequence": last_sequences(headers).astype(np.int32),
        "count": _native(headers, "record_count"),
        "bytes": headers["batch_length"].astype(np.int64) + LOG_OVERHEAD,
    }


def _native(headers: Headers, name: str) -> npt.NDArray[np.generic]:
    """Returns a field in the byte order and width of its column."""
    column = _COLUMNS.get(name, "int")
    return headers[name].astype(np.int64 if column == "long" else np.int32)


def to_arrow(rows: int, columns: dict[str, object]) -> pa.RecordBatch:
    """Makes an Arrow batch of `rows` rows; single values are repeated, missing columns are null."""
    return pa.RecordBatch.from_arrays(
        [_array(rows, columns.get(field.name), field.type) for field in ARROW_SCHEMA],
        schema=ARROW_SCHEMA,
    )


def _array(rows: int, value: object, of_type: pa.DataType) -> pa.Array:
    if value is None:
        return pa.nulls(rows, of_type)
    if isinstance(value, pa.Array):
        return value.cast(of_type)
    if isinstance(value, np.ndarray):
        return pa.array(value, of_type)
    return pa.repeat(pa.scalar(value, of_type), rows)
