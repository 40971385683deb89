"""Offsets of a stream are text that means the same whenever it is read, and limits are those of Spark's Kafka source."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.reading.batch_limits import TriggerDelay, limited_ends
from echoless.pipeline.reading.span import OffsetSpan
from echoless.pipeline.reading.stream_offsets import StreamOffsets, parse_stream_offsets

ZERO, ONE, TWO = (TopicPartition("t", number) for number in range(3))
_PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "_d"]), st.integers(0, 12))
_OFFSETS = st.dictionaries(_PARTITIONS, st.integers(0, 2**63 - 1), max_size=8)


def test_offsets_are_those_of_sparks_source_and_the_ids():
    """The mirror and other tools read the partitions' part."""
    offsets = StreamOffsets({ONE: 97, ZERO: 120}, {"t": "id"}, {ONE: 17, ZERO: 0})
    assert json.dumps(offsets.as_json()) == (
        '{"t": {"0": 120, "1": 97}, "$ids": {"t": "id"}, "$firsts": {"t": {"1": 17}}}'
    )


@given(_OFFSETS, _OFFSETS, st.randoms(use_true_random=False))
def test_equal_offsets_are_equal_text(offsets, firsts, order):
    """Spark compares the text; what it reads from the checkpoint comes in any order."""
    ids = {one.topic: "x" for one in offsets}
    text = json.dumps(StreamOffsets(offsets, ids, firsts).as_json())
    assert json.dumps(parse_stream_offsets(json.loads(text)).as_json()) == text
    shuffled = list(offsets.items())
    order.shuffle(shuffled)
    assert json.dumps(StreamOffsets(dict(shuffled), ids, firsts).as_json()) == text


def test_two_offsets_say_what_a_batch_reads():
    """Known partitions go on, new ones begin where they did when the batch was made, and so does a topic created again."""
    begin = StreamOffsets({ZERO: 5, TopicPartition("u", 0): 9}, {"t": "1", "u": "2"})
    end = StreamOffsets(
        {ZERO: 8, ONE: 20, TWO: 3, TopicPartition("u", 0): 4},
        {"t": "1", "u": "3"},
        {ONE: 17, TopicPartition("u", 0): 1},
    )
    assert begin.spans_to(end) == [
        OffsetSpan("t", 0, 5, 8, "1"),
        OffsetSpan("t", 1, 17, 20, "1"),
        OffsetSpan("t", 2, 0, 3, "1"),
        OffsetSpan("u", 0, 1, 4, "3"),
    ]


@pytest.mark.parametrize(
    ("starts", "ends", "most", "expected"),
    [
        ({ZERO: 0, ONE: 0}, {ZERO: 1000, ONE: 10}, 100, {ZERO: 99, ONE: 1}),
        ({ZERO: 0, ONE: 5, TWO: 1}, {ZERO: 5, ONE: 10, TWO: 6}, 1, {ZERO: 1, ONE: 6, TWO: 2}),
        ({ZERO: 0}, {ZERO: 0}, 10, {ZERO: 0}),
        ({ZERO: 3, ONE: 7}, {ZERO: 9, ONE: 7}, 100, {ZERO: 9, ONE: 7}),
    ],
)
def test_a_limit_is_shared_in_proportion(starts, ends, most, expected):
    """Each partition that has anything gets one offset at least; none goes beyond its end."""
    assert limited_ends(starts, ends, most) == expected


def test_few_offsets_wait_for_more_or_for_the_delay():
    """The first trigger never waits, as in Spark's source."""
    now = [0.0]
    delay = TriggerDelay(10, 60.0, lambda: now[0])
    assert not delay.holds(1)
    assert delay.holds(9)
    assert not delay.holds(10)
    now[0] = 59.0
    assert delay.holds(9)
    now[0] = 60.0
    assert not delay.holds(9)
    assert delay.holds(9)
