"""Arrow record batches from the batches of one partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from echoless.pipeline.reading.columns import arrow_schema_of
from echoless.pipeline.reading.header_columns import header_lists
from echoless.pipeline.reading.record_columns import FoundRecords, find_columns
from echoless.pipeline.reading.record_walk import Int64s, RecordArea
from echoless.pipeline.reading.span import OffsetSpan
from echoless.pipeline.reading.visible_batches import VisibleBatch
from echoless.protocol.compression import decompress
from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import HEADER_SIZE, Codec

GROUP_BYTES: Final = 2 * 1024 * 1024
"""Bytes of uncompressed records that become one Arrow batch, unless a single batch has more."""
GROUP_RECORDS: Final = 65_536
_MICROSECONDS: Final = 1000
_MS_MAX: Final = (2**63 - 1) // _MICROSECONDS


class RowBatches:
    """Makes the rows of a span, from any of its batches, with the columns that are wanted."""

    def __init__(self, span: OffsetSpan, columns: Sequence[str]) -> None:
        self._span = span
        self._schema = arrow_schema_of(columns)
        self._makers: Mapping[str, Callable[[_Group], Any]] = {
            "key": lambda group: group.records.keys(),
            "value": lambda group: group.records.values(),
            "topic": lambda group: _repeated_text(span.topic, group.count),
            "partition": lambda group: _numbers(
                pa.int32(), np.full(group.count, span.partition, np.int32)
            ),
            "offset": lambda group: _numbers(pa.int64(), group.offsets),
            "timestamp": lambda group: _numbers(
                pa.timestamp("us", "UTC"), _microseconds(group.timestamps)
            ),
            "timestampType": lambda group: _numbers(pa.int32(), group.timestamp_types),
            "headers": lambda group: header_lists(group.records),
        }

    def of(self, batches: Sequence[VisibleBatch]) -> Iterator[Any]:
        """Yields Arrow batches of the rows within the span, without empty ones. Raises `DecodeError`."""
        for group in _groups(batches):
            rows = _Group(group, self._span)
            if rows.count:
                arrays = [self._makers[name](rows) for name in self._schema.names]
                yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Group:
    """Some batches' records within a span, as columns."""

    def __init__(self, batches: Sequence[tuple[VisibleBatch, bytes]], span: OffsetSpan) -> None:
        headers = [batch.header for batch, _ in batches]
        self.records: FoundRecords = find_columns(*_joined(batches))
        counts = [header.record_count for header in headers]
        bases = np.repeat([header.base_offset for header in headers], counts)
        self._batches = np.repeat(np.arange(len(headers)), counts)
        self.offsets: Int64s = bases + self.records.offset_deltas
        self._cut(span, headers[0].base_offset, headers[-1].next_offset)
        self._headers = headers
        self.count = len(self.offsets)

    def _cut(self, span: OffsetSpan, first: int, end: int) -> None:
        """Leaves out what the batches at the edges hold outside the span."""
        if first >= span.start and end <= span.end:
            return
        inside = (self.offsets >= span.start) & (self.offsets < span.end)
        self.offsets, self._batches = self.offsets[inside], self._batches[inside]
        self.records = self.records.rows(inside)

    @property
    def timestamps(self) -> Int64s:
        """In ms since 1970; that of its batch for a record of a topic with log-append time."""
        base = np.array([header.base_timestamp for header in self._headers], np.int64)
        appended = np.array([header.is_log_append_time for header in self._headers])
        times: Int64s = base[self._batches] + self.records.timestamp_deltas
        if appended.any():
            latest = np.array([header.max_timestamp for header in self._headers], np.int64)
            times = np.where(appended[self._batches], latest[self._batches], times)
        return times

    @property
    def timestamp_types(self) -> Any:
        """0: the producer's, 1: the broker's."""
        kinds = np.array([header.is_log_append_time for header in self._headers], np.int32)
        return kinds[self._batches]


def _groups(
    batches: Sequence[VisibleBatch],
) -> Iterator[list[tuple[VisibleBatch, bytes]]]:
    """Opens the batches, and yields some at a time: compressed ones may be many times as large as what was fetched."""
    group: list[tuple[VisibleBatch, bytes]] = []
    size = count = 0
    for batch in batches:
        records = _opened(batch)
        if group and (
            size + len(records) > GROUP_BYTES or count + batch.header.record_count > GROUP_RECORDS
        ):
            yield group
            group, size, count = [], 0, 0
        group.append((batch, records))
        size += len(records)
        count += batch.header.record_count
    if group:
        yield group


def _joined(
    batches: Sequence[tuple[VisibleBatch, Any]],
) -> tuple[bytes, list[RecordArea]]:
    """Returns bytes that have all records, and where. Without compression they are those that were fetched."""
    if all(batch.header.codec_id == Codec.NONE for batch, _ in batches):
        fetched: Any = batches[0][0].batch.obj
        return fetched, [
            RecordArea(
                batch.position + HEADER_SIZE,
                batch.position + batch.header.size,
                batch.header.record_count,
            )
            for batch, _ in batches
        ]
    areas, position = [], 0
    for batch, records in batches:
        areas.append(RecordArea(position, position + len(records), batch.header.record_count))
        position += len(records)
    return b"".join(records for _, records in batches), areas


def _opened(batch: VisibleBatch) -> Any:
    records = batch.batch[HEADER_SIZE:]
    codec = batch.header.codec_id
    return records if codec == Codec.NONE else decompress(codec, records)


def _numbers(kind: Any, values: Any) -> Any:
    """Makes an Arrow array of a numpy array; `pyarrow.array` would import pandas, which takes 0.3 s."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _microseconds(times: Int64s) -> Int64s:
    """Returns ms as microseconds. Raises `DecodeError` for more than there can be, as Spark's source fails for them."""
    if len(times) and max(int(times.max()), -int(times.min())) > _MS_MAX:
        worst = max(int(times.max()), int(times.min()), key=abs)
        raise DecodeError(
            f"a record's timestamp is {worst} ms, which Spark's timestamps cannot hold; leave the column out "
            "by the option columns"
        )
    return times * _MICROSECONDS


def _repeated_text(text: str, count: int) -> Any:
    data = text.encode()
    offsets = np.arange(0, (count + 1) * len(data), len(data), dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers)
