"""Batches from Arrow columns are those that the same records make one by one."""

from __future__ import annotations

import itertools
from concurrent.futures import Future

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from echoless.client.batch import encode_batch, size_of
from echoless.client.column_batch import ColumnBatches
from echoless.client.columns import columns
from echoless.client.open_batches import OpenBatch, OpenBatches
from echoless.client.settings import Settings
from echoless.protocol.record_batch import Codec
from echoless.protocol.records import Record

LARGE = Settings(batch_records_max=1_000_000, batch_bytes_max=2**30)
LENGTHS = st.one_of(st.integers(0, 70), st.sampled_from([126, 127, 128, 8190, 8191, 8192, 8193]))
"""Those of the second kind lie where a record's length, or the field's own, takes a byte more."""
BYTES = st.one_of(st.none(), st.binary(max_size=20), LENGTHS.map(lambda length: b"x" * length))
DELTAS = st.one_of(
    st.integers(-70, 70), st.sampled_from([-(2**40), -8193, 8191, 8192, 2**20, 2**34, 2**61])
)
TIMES = st.one_of(DELTAS.map(lambda delta: max(2**41 + delta, 0)), st.integers(-1, 2**62))
NAMES = st.one_of(st.text(st.characters(codec="utf-8"), max_size=4), LENGTHS.map("n".__mul__))
HEADERS = st.one_of(st.just(()), st.lists(st.tuples(NAMES, BYTES), max_size=4).map(tuple))
RECORDS = st.lists(
    st.builds(Record, st.just(-1), TIMES, BYTES, BYTES, HEADERS), min_size=1, max_size=12
)
HEADER_TYPE = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
NUMBERS = {"producer_id": 4000, "producer_epoch": 3, "base_sequence": 2**31 - 2}


def as_columns(records):
    return columns(
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.array([record.timestamp for record in records], pa.int64()),
        header_lists(records),
    )


def header_lists(records):
    """Null where a record has none."""
    rows = [[{"key": k, "value": v} for k, v in one.headers] or None for one in records]
    return pa.array(rows, HEADER_TYPE)


def encode(rows, settings=LARGE, added=()):
    """The batches, when the rows are added in pieces that end before the rows `added`."""
    batches = ColumnBatches(settings)
    bounds = [0, *sorted(added), rows.row_count]
    ready = []
    for start, end in itertools.pairwise(bounds):
        ready += batches.add(rows.rows(start, end))
    return ready + batches.finish()


def record_batches(records, settings):
    """The record path: its batches as lists of records."""
    batches = []

    def take(batch: OpenBatch[Future]) -> None:
        batch.is_cut = True
        batches.append(batch.records)

    collected = OpenBatches(settings, Future, take)
    for record in records:
        collected.add("t", 0, record)
    collected.cut_all()
    return batches


@given(RECORDS, st.sampled_from(Codec))
@example([Record(-1, 5, None, None)], Codec.NONE)
@example([Record(-1, 5, b"", b"")] * 129, Codec.NONE)
@example([Record(-1, 5, b"k", b"v")] * 8200, Codec.LZ4)
@example(
    [Record(-1, 5, b"k", b"v", (("ä", b"1"), ("", None))), Record(-1, 5, b"k", b"v")], Codec.NONE
)
@example([Record(-1, 5, None, b"v", (("n", b""),) * 70)], Codec.GZIP)
@example([Record(-1, -1, b"k", b"v" * 3_000_000), Record(-1, 0, None, b"")], Codec.ZSTD)
def test_bytes_are_those_of_the_record_path(records, codec):
    """With nulls, empty and long values, times that run backwards, and at each varint's boundary."""
    settings = Settings(
        batch_records_max=10_000, batch_bytes_max=LARGE.batch_bytes_max, compression=codec
    )
    (ready,) = encode(as_columns(records), settings)
    assert ready.stamped(**NUMBERS) == encode_batch(records, codec, **NUMBERS)
    assert (len(ready), ready.size) == (len(records), size_of(records))
    assert [record[1:4] for record in ready.records()] == [record[1:4] for record in records]


@given(RECORDS, st.integers(1, 6), st.integers(1, 400), st.data())
def test_cuts_are_those_of_the_record_path(records, records_max, bytes_max, data):
    """However the rows are spread over the calls."""
    settings = Settings(batch_records_max=records_max, batch_bytes_max=bytes_max)
    added = data.draw(st.lists(st.integers(0, len(records)), max_size=4))
    expected = [
        encode_batch(batch, Codec.NONE, **NUMBERS) for batch in record_batches(records, settings)
    ]
    found = encode(as_columns(records), settings, added)
    assert [ready.stamped(**NUMBERS) for ready in found] == expected


@given(RECORDS, st.data())
def test_slices_and_other_types_make_the_same(records, data):
    """A slice of a longer column, large binary, chunks."""
    start = data.draw(st.integers(0, len(records) - 1))
    keys, values, times = (
        pa.array([getattr(record, name) for record in records], kind)
        for name, kind in (
            ("key", pa.large_binary()),
            ("value", pa.binary()),
            ("timestamp", pa.int64()),
        )
    )
    headers = pa.chunked_array([header_lists(records)[start:]])
    rows = columns(keys[start:], pa.chunked_array([values[start:]]), times[start:], headers)
    (ready,) = encode(rows)
    assert ready.stamped(**NUMBERS) == encode_batch(records[start:], Codec.NONE, **NUMBERS)


def test_text_and_columns_of_nothing_but_nulls_are_taken():
    """Spark's `key` is often text, or null for all rows."""
    rows = columns(pa.nulls(2), pa.array(["ä", "b"]), pa.array([1, 2]))
    (ready,) = encode(rows)
    records = [Record(-1, 1, None, "ä".encode()), Record(-1, 2, None, b"b")]
    assert ready.stamped(**NUMBERS) == encode_batch(records, Codec.NONE, **NUMBERS)


def test_headers_of_other_types_make_the_same():
    """Large lists, text as values, keys as bytes; rows whose list is empty or null have none."""
    kind = pa.large_list(pa.struct({"value": pa.large_string(), "key": pa.binary()}))
    lists = pa.array([[], None, [{"key": b"a", "value": "1"}, {"key": b"b", "value": None}]], kind)
    rows = columns(pa.nulls(3), pa.array([b"v"] * 3), pa.array([1, 1, 1]), lists)
    (ready,) = encode(rows)
    plain = Record(-1, 1, None, b"v")
    records = [plain, plain, plain._replace(headers=(("a", b"1"), ("b", None)))]
    assert ready.stamped(**NUMBERS) == encode_batch(records, Codec.NONE, **NUMBERS)
    assert columns(pa.nulls(2), pa.array([b"v"] * 2), pa.array([1, 1]), lists[:2]).headers is None


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        (pa.array([[b"v"]]), "lists of structs of key and value, not list<item: binary>"),
        (pa.array([[{"key": "a"}]]), "lists of structs of key and value"),
        (pa.array([[{"key": None, "value": b""}]], HEADER_TYPE), "a header has the key null"),
        (pa.array([[None]], HEADER_TYPE), "a header has the key null"),
        (pa.array([[{"key": b"\xff", "value": b""}]]), "UTF8"),
        (pa.array([[{"key": "a", "value": 1}]]), "binary or text, not int64"),
        (pa.array([[], []], HEADER_TYPE), "1 rows, and headers of 2"),
    ],
)
def test_unusable_headers_are_refused(headers, error):
    """The error says what is wrong with them."""
    with pytest.raises((TypeError, ValueError), match=error):
        columns(pa.nulls(1), pa.array([b"v"]), pa.array([1]), headers)


def test_no_rows_make_no_batch():
    """None comes before the first row, nor after a batch that has ended."""
    batches = ColumnBatches(Settings(batch_records_max=1))
    assert batches.finish() == batches.add(as_columns([])) == []
    assert len(batches.add(as_columns([Record(-1, 1, None, b"v")]))) == 1
    assert batches.finish() == []


@pytest.mark.parametrize(
    ("keys", "values", "times", "error"),
    [
        (pa.array([1]), pa.array([b"v"]), pa.array([1]), "binary or text, not int64"),
        (pa.nulls(1), pa.array([b"v"]), pa.array([1], pa.int32()), "int64, in ms, not int32"),
        (pa.nulls(1), pa.array([b"v"]), pa.array([None], pa.int64()), "null"),
        (pa.nulls(2), pa.array([b"v"]), pa.array([1]), "2, 1 and 1 rows"),
    ],
)
def test_unusable_columns_are_refused(keys, values, times, error):
    """The error says what is wrong with them."""
    with pytest.raises((TypeError, ValueError), match=error):
        columns(keys, values, times)


def test_sizes_are_64_bit():
    """Sums over many rows do not wrap."""
    assert as_columns([Record(-1, 1, b"k", b"v")]).sizes().dtype == np.int64
