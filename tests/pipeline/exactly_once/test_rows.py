"""Which row goes where depends on the rows alone, and every column arrives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from echoless.client.batch import partition_of
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.errors import RowError
from echoless.pipeline.exactly_once.fingerprint import Fingerprint, is_older
from echoless.pipeline.exactly_once.row_order import sort_rows
from echoless.pipeline.exactly_once.rows import KEYLESS_RUN, Router, chunks
from echoless.protocol.records import Record

COUNT = 4
HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))


def route(to: str | None = "t", first_row: int = 0, **columns: object) -> list:
    router = Router(
        topic=to,
        timestamp_ms=77,
        partition_count=lambda _: COUNT,
        partition_count_now=lambda _: COUNT,
        first_partition=0,
        first_row=first_row,
    )
    (chunk,) = chunks([pa.record_batch(columns)])
    return router.route(chunk)


def places(slices: list) -> dict[TopicPartition, list[int]]:
    return {rows.target: rows.numbers.tolist() for rows in slices}


def test_a_key_goes_where_kafkas_client_puts_it():
    """The order of the rows is kept."""
    keys = [str(n).encode() for n in range(100)]
    found = places(route(key=keys, value=keys))
    for index in range(COUNT):
        wanted = [n for n, key in enumerate(keys) if partition_of(key, COUNT) == index]
        assert found[TopicPartition("t", index)] == wanted


def test_a_partition_counts_more_than_a_key():
    """A null partition counts as none."""
    found = places(
        route(
            key=["a", "a", None],
            value=["1", "2", "3"],
            partition=pa.array([3, None, None], pa.int32()),
        )
    )
    assert found.pop(TopicPartition("t", 3)) == [0]
    assert found.pop(TopicPartition("t", partition_of(b"a", COUNT)), []) in ([1], [1, 2])


def test_rows_without_a_key_go_in_runs():
    """Their numbers decide, whatever chunks they come in."""
    values = ["v"] * (KEYLESS_RUN + 10)
    assert places(route(value=values)) == {
        TopicPartition("t", 0): list(range(KEYLESS_RUN)),
        TopicPartition("t", 1): list(range(KEYLESS_RUN, KEYLESS_RUN + 10)),
    }
    assert list(places(route(value=["v"], first_row=KEYLESS_RUN))) == [TopicPartition("t", 1)]


def test_the_topic_column_counts_where_there_is_no_option():
    """It is the same as in Spark's Kafka sink."""
    columns = {"topic": ["a", "b", "a"], "value": ["1", "2", "3"], "partition": [0, 0, 0]}
    assert places(route(to=None, **columns)) == {
        TopicPartition("a", 0): [0, 2],
        TopicPartition("b", 0): [1],
    }
    assert places(route(**columns)) == {TopicPartition("t", 0): [0, 1, 2]}


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"value": ["v"], "partition": [4]}, "row 5: partition 4 of t, which has 4"),
        ({"value": ["v"], "partition": [-1]}, "row 5: partition -1"),
        ({"value": ["v"], "topic": pa.array([None], pa.string())}, "row 5 has no topic"),
    ],
)
def test_a_row_that_is_no_record_is_named(columns, reason):
    """The error has its number in its Spark partition."""
    to = None if "topic" in columns else "t"
    with pytest.raises(RowError, match=reason):
        route(to=to, first_row=5, **columns)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_become_milliseconds(unit):
    """Finer units are rounded down; a row without a time gets the batch's."""
    per_second = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[unit]
    times = pa.array([5 * per_second, None, -per_second], pa.timestamp(unit, "UTC"))
    (rows,) = route(value=["1", "2", "3"], timestamp=times)
    assert rows.columns.timestamps.tolist() == [5000, 77, -1000]


def test_a_header_without_a_key_is_refused():
    """Kafka's records have none; a value may be null."""
    headers = pa.array([[{"key": "h", "value": None}], [{"key": None, "value": b"x"}]], HEADERS)
    with pytest.raises(RowError, match="has the key null"):
        route(value=["1", "2"], headers=headers)


def test_headers_arrive():
    """Rows without headers have none, not a list of none."""
    headers = pa.array([[{"key": "h", "value": b"x"}], None, []], HEADERS)
    (rows,) = route(key=["k"] * 3, value=["1", "2", None], headers=headers)
    assert rows.records() == [
        Record(-1, 77, b"k", b"1", (("h", b"x"),)),
        Record(-1, 77, b"k", b"2", ()),
        Record(-1, 77, b"k", None, ()),
    ]
    (rows,) = route(key=["k"], value=["1"], headers=pa.array([[]], HEADERS))
    assert rows.headers is None


def test_a_fingerprint_knows_the_rows_and_not_how_they_are_cut():
    """The same rows in two pieces are the same rows."""
    headers = pa.array([None, [{"key": "h", "value": b"x"}], None], HEADERS)
    (rows,) = route(key=["k"] * 3, value=["1", "2", None], headers=headers)
    whole, cut = Fingerprint(), Fingerprint()
    whole.add(rows)
    for index in range(3):
        cut.add(rows.rows(index, index + 1))
    assert str(whole) == str(cut)
    assert cut.rows == 3


def test_a_fingerprint_of_release_0_2_is_matched():
    """It had another checksum of headers; of rows without headers it is the same."""
    headers = pa.array([None, [{"key": "h", "value": b"x"}], None], HEADERS)
    (rows,) = route(key=["k"] * 3, value=["1", "2", None], headers=headers)
    text = "451a507f-85845eb9-7355c460-08f7dad3-3728c87a-d46b909d"
    assert is_older(text)
    older, newer = Fingerprint(is_older=True), Fingerprint()
    for one in (older, newer):
        one.add(rows)
    assert older.matches(text)
    assert not newer.matches(text)
    assert not is_older(str(newer))
    (plain,) = route(key=["k"], value=["1"])
    texts = set()
    for one in (Fingerprint(is_older=True), Fingerprint()):
        one.add(plain)
        texts.add(str(one))
    assert len(texts) == 1
    assert not is_older(texts.pop())


@pytest.mark.parametrize(
    "other",
    [
        {"value": ["2", "1"]},
        {"value": ["12", ""]},
        {"value": ["1", "2"], "key": ["a", "b"]},
        {"value": ["1", None]},
        {"value": ["1", "2"], "timestamp": [77, 78]},
        {"value": ["1", "2"], "headers": pa.array([None, [{"key": "h", "value": b""}]], HEADERS)},
        {"value": ["1", "2"], "headers": pa.array([[{"key": "h", "value": b""}], None], HEADERS)},
        {"value": ["1", "2"], "headers": pa.array([None, [{"key": "h", "value": None}]], HEADERS)},
    ],
)
def test_a_fingerprint_knows_every_part_of_a_row(other):
    """Order, lengths, keys, nulls, times and headers."""
    columns = {"value": ["1", "2"], "key": ["a", "a"], "partition": [0, 0]}
    texts = set()
    for given in (columns, {**columns, **other}):
        found = Fingerprint()
        (rows,) = route(**given)
        found.add(rows)
        texts.add(str(found))
    assert len(texts) == 2


def test_sorted_rows_do_not_depend_on_their_order():
    """Rows are sorted by the named columns first, then by all that are written."""
    rng = np.random.default_rng(1)
    values = [str(n) for n in range(50)]
    headers = [[{"key": "h", "value": v.encode()}] for v in values]

    def shuffled() -> pa.RecordBatch:
        order = rng.permutation(50)
        columns = {
            "value": pa.array([values[n] for n in order]),
            "headers": pa.array([headers[n] for n in order], HEADERS),
            "rank": pa.array([-int(n) for n in order]),
            "key": pa.nulls(50),
        }
        return pa.record_batch(columns)

    for first in ((), ("rank",)):
        one, two = (pa.Table.from_batches(sort_rows([shuffled()], first)) for _ in range(2))
        assert one.equals(two)
    assert one.column("value").to_pylist() == values[::-1]
