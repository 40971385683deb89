"""Columns of records are those that `protocol/records.py` reads one by one, and damage is an error."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.pipeline.reading import record_walk
from echoless.pipeline.reading.header_columns import header_lists
from echoless.pipeline.reading.record_columns import FoundRecords, find_columns
from echoless.pipeline.reading.record_walk import RecordArea
from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import HEADER_SIZE
from echoless.protocol.records import Record, build_batch, read_records

_BYTES = st.none() | st.binary(max_size=200)
_RECORDS = st.builds(
    Record,
    offset=st.just(0),
    timestamp=st.integers(0, 2**42),
    key=_BYTES,
    value=_BYTES,
    headers=st.lists(st.tuples(st.text(max_size=5), _BYTES), max_size=3),
)


def found(batches: Sequence[bytes]) -> FoundRecords:
    """The fields of the batches' records."""
    areas, position = [], 0
    for batch in batches:
        size = len(batch) - HEADER_SIZE
        count = int.from_bytes(batch[57:61], "big")
        areas.append(RecordArea(position, position + size, count))
        position += size
    return find_columns(b"".join(batch[HEADER_SIZE:] for batch in batches), areas)


def check(batches: Sequence[bytes]) -> None:
    """Compares every column with the reader of single records."""
    records = found(batches)
    expected = [(batch, record) for batch in batches for record in read_records(batch)]
    assert records.keys().to_pylist() == [record.key for _, record in expected]
    assert records.values().to_pylist() == [record.value for _, record in expected]
    deltas = [record.timestamp - int.from_bytes(batch[27:35], "big") for batch, record in expected]
    assert records.timestamp_deltas.tolist() == deltas
    assert records.offset_deltas.tolist() == [record.offset for _, record in expected]
    lists = [
        [(one["key"], one["value"]) for one in of or ()] for of in header_lists(records).to_pylist()
    ]
    assert lists == [list(record.headers) for _, record in expected]


@given(st.lists(st.lists(_RECORDS, min_size=1, max_size=6), min_size=1, max_size=6))
def test_all_fields_are_those_of_single_records(batches):
    """Null and empty are not the same, and numbers may take any number of bytes."""
    check([build_batch(records) for records in batches])


@pytest.mark.parametrize("sizes", [[1] * 60, [2000], [30, 1] * 40, [200] * 50])
def test_both_ways_to_find_records_agree(sizes, monkeypatch):
    """Many small batches side by side, few large ones one record after the other: record lengths of one to three bytes."""
    choice = random.Random(7)
    batches = [
        build_batch(
            [
                Record(0, 5, b"k", bytes(choice.choice([0, 1, 60, 130, 9000]) if n < 50 else 3))
                for n in range(size)
            ]
        )
        for size in sizes
    ]
    check(batches)
    monkeypatch.setattr(record_walk, "_STEP_RECORDS", 0)
    check(batches)
    monkeypatch.setattr(record_walk, "_STEP_RECORDS", 10**9)
    check(batches)


@given(st.data())
def test_damaged_records_are_an_error_or_stay_within_their_bytes(data):
    """Whatever the bytes are, no field reaches beyond them, and none overlaps another."""
    batch = bytearray(build_batch(data.draw(st.lists(_RECORDS, min_size=1, max_size=4))))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(HEADER_SIZE, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    try:
        records = found([bytes(batch)])
        keys, values, headers = records.keys(), records.values(), header_lists(records)
    except DecodeError:
        return
    for column in (keys, values, headers):
        column.validate(full=True)


def test_a_count_beyond_the_bytes_is_refused():
    """A header may claim more records than there can be; no memory is taken for them."""
    batch = build_batch([Record(0, 5, b"k", b"v")])
    with pytest.raises(DecodeError, match="cannot fit"):
        find_columns(batch[HEADER_SIZE:], [RecordArea(0, len(batch) - HEADER_SIZE, 2**31 - 1)])


def test_a_header_name_that_is_not_utf_8_is_read_as_java_reads_it():
    """The byte becomes U+FFFD."""
    batch = build_batch([Record(0, 5, b"k", b"v", (("name", b"x"),))])
    broken = batch.replace(b"name", b"na\xffe")
    assert header_lists(found([broken])).to_pylist() == [[{"key": "na�e", "value": b"x"}]]
