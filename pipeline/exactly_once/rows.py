"""Rows of a data frame as records, and the partition that each row goes to.

The columns are those of Spark's Kafka sink (`key`, `value`, `topic`, `partition`, `headers`) and
`timestamp`; others are ignored. The partition of a row depends only on the row, its number in its
Spark partition and the number of partitions of its topic, so every attempt sends it to the same
one:

1. its column `partition`, if that is not null;
2. its key, as Kafka's own client spreads keys;
3. without either, its number: `KEYLESS_RUN` rows to one partition, the next to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from echoless.client.column_partitions import partitions_of
from echoless.client.columns import Columns, columns
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.errors import RowError
from echoless.protocol.records import Record

Int64s = npt.NDArray[np.int64]

CHUNK_ROWS: Final = 50_000
CHUNK_BYTES: Final = 32 * 1024 * 1024
"""Rows or bytes read at once: enough that each partition gets full batches."""
KEYLESS_RUN: Final = 1000
_UNITS_PER_MS: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}
NAMES: Final = ("key", "value", "topic", "partition", "headers", "timestamp")


class RowSlice(NamedTuple):
    """Rows for one partition, in the order in which they are sent."""

    target: TopicPartition
    columns: Columns
    headers: Any
    """Arrow array of lists of (key, value), as `columns` has them encoded; None if the rows have no headers."""
    numbers: Int64s
    """Indexes of the rows within their Spark partition."""

    @property
    def row_count(self) -> int:
        return len(self.numbers)

    def rows(self, start: int, end: int) -> RowSlice:
        headers = None if self.headers is None else self.headers[start:end]
        return RowSlice(
            self.target, self.columns.rows(start, end), headers, self.numbers[start:end]
        )

    def records(self) -> list[Record]:
        """Returns each row as an object, to compare."""
        keys, values = self.columns.keys.to_pylist(), self.columns.values.to_pylist()
        timestamps = self.columns.timestamps.tolist()
        headers = self.header_tuples() or [()] * self.row_count
        return [Record(-1, *row) for row in zip(timestamps, keys, values, headers, strict=True)]

    def header_tuples(self) -> list[tuple[tuple[str, bytes | None], ...]]:
        """Returns the headers of each row; empty if no row has any."""
        if self.headers is None:
            return []
        return [
            tuple((one["key"], one["value"]) for one in found or ())
            for found in self.headers.to_pylist()
        ]


def slice_of(target: TopicPartition, records: Sequence[Record], first_number: int = 0) -> RowSlice:
    """Makes a slice of records."""
    keys = pa.array([record.key for record in records], pa.binary())
    values = pa.array([record.value for record in records], pa.binary())
    timestamps = pa.array([record.timestamp for record in records], pa.int64())
    headers = None
    if any(record.headers for record in records):
        rows = [[{"key": key, "value": value} for key, value in r.headers] for r in records]
        headers = pa.array(rows, pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})))
    numbers = np.arange(first_number, first_number + len(records))
    return RowSlice(target, columns(keys, values, timestamps, headers), headers, numbers)


class Router:
    """Cuts a chunk of rows into slices, one for each partition."""

    def __init__(
        self,
        *,
        topic: str | None,
        timestamp_ms: int,
        partition_count: Callable[[str], int],
        partition_count_now: Callable[[str], int],
        first_partition: int,
        first_row: int,
    ) -> None:
        """Sets what the partitions depend on besides the rows.

        * `partition_count`: number of partitions that keys are spread over, the same in every attempt
        * `partition_count_now`: number of partitions that the topic has
        * `first_partition`: where rows with neither key nor partition begin
        * `first_row`: index of the chunk's first row within the Spark partition
        """
        self._topic = topic
        self._timestamp_ms = timestamp_ms
        self._partition_count = partition_count
        self._partition_count_now = partition_count_now
        self._first_partition = first_partition
        self._first_row = first_row

    def route(self, chunk: Any) -> list[RowSlice]:
        """Cuts an Arrow table into slices. Raises `RowError`."""
        numbers = np.arange(self._first_row, self._first_row + chunk.num_rows)
        slices: list[RowSlice] = []
        for topic, indexes in self._by_topic(chunk, numbers):
            rows = chunk if indexes is None else chunk.take(pa.array(indexes))
            own = numbers if indexes is None else numbers[indexes]
            slices += self._route_topic(topic, rows, own)
        return slices

    def _by_topic(self, chunk: Any, numbers: Int64s) -> Iterator[tuple[str, Int64s | None]]:
        """Yields each topic, and the indexes of its rows; None: all of them."""
        if self._topic is not None:
            yield self._topic, None
            return
        topics = _column(chunk, "topic")
        if topics is None:
            raise RowError("rows need a column topic, or the sink the option topic")
        if topics.null_count:
            index = int(np.flatnonzero(topics.is_null())[0])
            raise RowError(f"row {numbers[index]} has no topic")
        found = topics.dictionary_encode()
        codes = found.indices.to_numpy()
        names = found.dictionary.to_pylist()
        for code, name in enumerate(names):
            yield name, None if len(names) == 1 else np.flatnonzero(codes == code)

    def _route_topic(self, topic: str, rows: Any, numbers: Int64s) -> list[RowSlice]:
        keys = _column(rows, "key")
        partitions = self._partitions(topic, rows, keys, numbers)
        order = np.argsort(partitions, kind="stable")
        ordered = partitions[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        headers = _column(rows, "headers")
        if headers is not None:
            headers = headers.take(pa.array(order))
            headers = headers if pc.max(pc.list_value_length(headers)).as_py() else None
            _check_header_keys(headers, topic)
        whole = self._columns(rows, keys, headers, order)
        all_rows = RowSlice(TopicPartition(topic, -1), whole, headers, numbers[order])
        ends = [*starts[1:].tolist(), len(ordered)]
        return [
            all_rows.rows(start, end)._replace(target=TopicPartition(topic, int(ordered[start])))
            for start, end in zip(starts.tolist(), ends, strict=True)
        ]

    def _columns(self, rows: Any, keys: Any, headers: Any, order: Int64s) -> Columns:
        indexes = pa.array(order)
        values = _column(rows, "value")
        if values is None:
            raise RowError("rows need a column value")
        if keys is None:
            keys = pa.nulls(len(values), pa.binary())
        return columns(
            keys.take(indexes), values.take(indexes), self._timestamps(rows).take(indexes), headers
        )

    def _timestamps(self, rows: Any) -> Any:
        found = _column(rows, "timestamp")
        if found is None:
            return pa.array(np.full(rows.num_rows, self._timestamp_ms))
        if pa.types.is_timestamp(found.type):
            return milliseconds(found).fill_null(self._timestamp_ms)
        return found.cast(pa.int64()).fill_null(self._timestamp_ms)

    def _partitions(self, topic: str, rows: Any, keys: Any, numbers: Int64s) -> Int64s:
        count = self._partition_count(topic)
        partitions = (self._first_partition + numbers // KEYLESS_RUN) % count
        if keys is not None and keys.null_count < len(keys):
            has_key = np.asarray(keys.is_valid())
            partitions[has_key] = partitions_of(keys.drop_null(), count)
        given = _column(rows, "partition")
        if given is not None and given.null_count < len(given):
            is_given = np.asarray(given.is_valid())
            partitions[is_given] = given.drop_null().to_numpy()
        self._check_partitions(topic, partitions, numbers)
        return partitions

    def _check_partitions(self, topic: str, partitions: Int64s, numbers: Int64s) -> None:
        """Checks partitions named by rows, which may have been added since the batch was begun."""
        count = self._partition_count(topic)
        if partitions.max(initial=-1) >= count:
            count = self._partition_count_now(topic)
        wrong = np.flatnonzero((partitions < 0) | (partitions >= count))
        if len(wrong):
            index = wrong[0]
            raise RowError(
                f"row {numbers[index]}: partition {partitions[index]} of {topic}, which has {count}"
            )


def chunks(batches: Iterable[Any]) -> Iterator[Any]:
    """Combines Arrow batches into tables large enough to fill a batch for each partition."""
    kept: list[Any] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        kept.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield _table(kept)
            kept, rows, size = [], 0, 0
    if kept:
        yield _table(kept)


def _table(batches: list[Any]) -> Any:
    table = pa.Table.from_batches(batches)
    wanted = [name for name in table.column_names if name.lower() in NAMES]
    return table.select(wanted).rename_columns([name.lower() for name in wanted]).combine_chunks()


def _check_header_keys(headers: Any, topic: str) -> None:
    """Raises `RowError` if a header has no key."""
    if headers is None:
        return
    keys = pc.struct_field(pc.list_flatten(headers), "key")
    if keys.null_count:
        raise RowError(
            f"a header of a row for {topic} has the key null: a header needs a key, its value may be null"
        )


def milliseconds(times: Any) -> Any:
    """Converts Arrow timestamps to ms, rounded down."""
    numbers = times.cast(pa.int64()).fill_null(0).to_numpy()
    unit = times.type.unit
    scaled = numbers * 1000 if unit == "s" else numbers // _UNITS_PER_MS[unit]
    return pa.array(scaled, mask=~np.asarray(times.is_valid()))


def _column(rows: Any, name: str) -> Any:
    """Returns the column as one array; None if the rows do not have it."""
    if name not in rows.column_names:
        return None
    found = rows.column(name)
    return found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()
