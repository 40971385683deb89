"""Batches from Arrow columns: the bytes that `encode_batch` would make, many times faster.

No Python object is made for a record. numpy writes the numbers of all records as varints, Arrow's
`binary_join_element_wise` puts keys and values between them, and the result is the records of all
batches, one after the other:

    length, attributes, timestamp delta, offset delta, key length | key | value length | value | headers

Headers are encoded with the column (`column_headers.py`); a row without any has a 0. Where a batch ends is decided as in `open_batches.py`, by the records and the settings alone,
however the rows are divided among the calls of `ColumnBatches.add`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from echoless.client.column_bytes import (
    Int64s,
    binary_scalar,
    byte_counts,
    bytes_of,
    join,
    lengths_of,
)
from echoless.client.column_varints import varints, widths, zigzag
from echoless.client.columns import Columns, joined
from echoless.client.ready_batch import ReadyBatch
from echoless.client.settings import DEFAULT_SETTINGS, Settings
from echoless.protocol.compression import compress
from echoless.protocol.record_batch import MAGIC, NO_LEADER_EPOCH, BatchHeader, Codec
from echoless.protocol.sequence import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

_ATTRIBUTES_BYTES: Final = 1
_NO_HEADERS_BYTES: Final = 1


_NO_HEADERS: Final = binary_scalar(b"\x00")


class ColumnBatches:
    """Cuts the rows of one partition into batches and encodes them, in their order; needs the extra `spark`.

    Batches end where `Producer.send` would end them, however the rows are divided among the calls of `add`.
    """

    def __init__(self, settings: Settings = DEFAULT_SETTINGS) -> None:
        """`settings` are those of the producer that sends the batches."""
        self._settings = settings
        self._open: list[Columns] = []
        """The non-empty pieces of the batch that has not ended yet."""
        self._open_count = 0
        self._open_bytes = 0

    def add(self, rows: Columns) -> list[ReadyBatch]:
        """Adds rows, and returns the batches that they complete, for `Producer.send_batch`."""
        self._keep(rows)
        if not self._may_have_ended():
            return []
        together = self._take()
        ends = batch_ends(together.sizes(), self._settings)
        end = ends[-1] if ends else 0
        self._keep(together.rows(end, together.row_count))
        return encode_columns(together.rows(0, end), ends, self._settings.compression)

    def finish(self) -> list[ReadyBatch]:
        """Ends the last batch, if one was begun; the next rows begin another."""
        if not self._open:
            return []
        rest = self._take()
        return encode_columns(rest, [rest.row_count], self._settings.compression)

    def _may_have_ended(self) -> bool:
        settings = self._settings
        is_full = self._open_count >= settings.batch_records_max
        return is_full or self._open_bytes > settings.batch_bytes_max

    def _keep(self, rows: Columns) -> None:
        if rows.row_count:
            self._open.append(rows)
            self._open_count += rows.row_count
            self._open_bytes += int(rows.sizes().sum())

    def _take(self) -> Columns:
        taken, self._open, self._open_count, self._open_bytes = self._open, [], 0, 0
        return joined(taken)


def batch_ends(sizes: Int64s, settings: Settings) -> list[int]:
    """The end (exclusive) of each complete batch; the rows after the last end may still get more.

    `sizes` are those of `Columns.sizes`.
    """
    through = np.cumsum(sizes)
    ends: list[int] = []
    start = bytes_before = 0
    while start < len(sizes):
        limit = bytes_before + settings.batch_bytes_max
        full = start + settings.batch_records_max
        end = min(max(int(np.searchsorted(through, limit, "right")), start + 1), full)
        if end >= len(sizes) and end < full:
            break
        ends.append(end)
        start, bytes_before = end, int(through[end - 1])
    return ends


def encode_columns(rows: Columns, ends: Sequence[int], codec: Codec) -> list[ReadyBatch]:
    """One batch up to each of `ends`, the last of which is the number of rows."""
    if not ends:
        return []
    starts = np.array([0, *ends[:-1]])
    body, positions = bytes_of(_records(rows, starts))
    batches = []
    for start, end, base_timestamp, max_timestamp, size in zip(
        starts.tolist(),
        ends,
        rows.timestamps[starts].tolist(),
        np.maximum.reduceat(rows.timestamps, starts).tolist(),
        np.add.reduceat(rows.sizes(), starts).tolist(),
        strict=True,
    ):
        header = _header(end - start, base_timestamp, max_timestamp, codec)
        records = memoryview(body)[positions[start] : positions[end]]
        compressed = records if codec is Codec.NONE else compress(codec, records)
        batches.append(ReadyBatch(header=header, body=compressed, size=size))
    return batches


def _header(count: int, base_timestamp: int, max_timestamp: int, codec: Codec) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=count,
    )


def _records(rows: Columns, starts: Int64s) -> Any:
    """An Arrow array with the bytes of each record. A batch begins at each of `starts`."""
    counts = np.diff(starts, append=rows.row_count)
    key_lengths, value_lengths = lengths_of(rows.keys), lengths_of(rows.values)
    timestamp_deltas = zigzag(rows.timestamps - np.repeat(rows.timestamps[starts], counts))
    offset_deltas = zigzag(np.arange(rows.row_count) - np.repeat(starts, counts))
    key_sizes, value_sizes = zigzag(key_lengths), zigzag(value_lengths)
    numbers = (timestamp_deltas, offset_deltas, key_sizes, value_sizes)
    lengths = _ATTRIBUTES_BYTES + byte_counts(key_lengths) + byte_counts(value_lengths)
    lengths += sum(map(widths, numbers))
    lengths += _NO_HEADERS_BYTES if rows.headers is None else lengths_of(rows.headers.encoded)
    headers = _NO_HEADERS if rows.headers is None else rows.headers.encoded
    attributes = np.zeros(rows.row_count, np.uint64)
    heads = (zigzag(lengths), attributes, timestamp_deltas, offset_deltas, key_sizes)
    return join(varints(heads), rows.keys, varints((value_sizes,)), rows.values, headers)
