"""Offsets are divided among tasks as Spark's Kafka source divides them, in an order that depends on them alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echoless.pipeline.reading.span import OffsetSpan, split_spans


def span(partition: int, start: int, end: int) -> OffsetSpan:
    return OffsetSpan("t", partition, start, end)


def sizes(parts: list[OffsetSpan]) -> list[int]:
    return [part.size for part in parts]


def test_a_small_partition_stays_whole_and_the_others_share_the_rest():
    """300 and 1 offsets in 4 tasks."""
    parts = split_spans([span(1, 0, 1), span(0, 0, 300)], tasks_min=4)
    assert sizes(parts) == [100, 100, 100, 1]


def test_the_last_parts_get_what_does_not_divide_evenly():
    """10 offsets, at most 4 each."""
    assert sizes(split_spans([span(0, 0, 10)], records_max=4)) == [3, 3, 4]


def test_empty_spans_become_no_task():
    """Neither of nothing nor of a start behind the end."""
    assert split_spans([span(0, 5, 5), span(1, 7, 3)], tasks_min=3) == []


def test_more_tasks_than_offsets_are_not_made():
    """Each part has one offset at least."""
    assert sizes(split_spans([span(0, 0, 3)], tasks_min=10)) == [1, 1, 1]


def test_there_are_no_more_parts_than_offsets():
    """However many tasks are asked for: planning takes no longer than they are."""
    assert sizes(split_spans([span(0, 0, 3), span(1, 0, 1)], tasks_min=10**12)) == [1, 1, 1, 1]


@given(
    st.dictionaries(
        st.integers(0, 9), st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=6
    ),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 20),
    st.randoms(use_true_random=False),
)
def test_parts_are_the_same_in_whatever_order_the_spans_come(spans, tasks_min, records_max, order):
    """Each offset is in one part, parts are sorted, and none has more than it may."""
    given_spans = [span(number, *ends) for number, ends in spans.items()]
    parts = split_spans(given_spans, tasks_min=tasks_min, records_max=records_max)
    order.shuffle(given_spans)
    assert parts == split_spans(given_spans, tasks_min=tasks_min, records_max=records_max)
    assert parts == sorted(parts)
    offsets = [(part.partition, offset) for part in parts for offset in range(part.start, part.end)]
    expected = [
        (number, offset)
        for number, (start, end) in sorted(spans.items())
        for offset in range(start, end)
    ]
    assert offsets == expected
    assert all(size <= records_max for size in sizes(parts) if records_max is not None)
