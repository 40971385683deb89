"""Parsing Spark's offsets."""

from __future__ import annotations

from echoless.pipeline.mirror.mirror import MirrorPlan
from echoless.pipeline.mirror.offsets import advanced, lag_of, parse_batch_offsets

_FILE = 'v1\n{"batchWatermarkMs":0,"conf":{"spark.sql.shuffle.partitions":"8"}}\n{"a":{"0":5,"2":7},"b":{"0":1}}'


def test_a_batch_ends_where_its_file_says() -> None:
    """The third line of `offsets/<batch>` has the ends of all partitions of all topics."""
    assert parse_batch_offsets(_FILE) == {"a": {0: 5, 2: 7}, "b": {0: 1}}


def test_lag_is_what_lies_behind_the_end_of_the_batch() -> None:
    """Partitions that were not read yet wait with all they have."""
    source = {"latestOffset": '{"a": {"0": 9, "1": 4}}', "endOffset": {"a": {"0": 5}}}
    assert lag_of({"sources": [source]}) == {"a-0": 4, "a-1": 4}


def test_nothing_is_known_to_wait_before_the_first_batch() -> None:
    """Spark reports null then."""
    assert lag_of({"sources": [{"latestOffset": None, "endOffset": None}]}) == {}


def test_a_topic_without_new_records_takes_no_part_in_a_batch() -> None:
    """A new one without a record neither; one with records does with all its partitions."""
    before = {"a": {0: 5, 1: 3}, "idle": {0: 9}}
    reached = {"a": {0: 5, 1: 4}, "idle": {0: 9}, "new": {0: 2}, "empty": {0: 0}}
    assert advanced(reached, before) == {"a": {0: 5, 1: 4}, "new": {0: 2}}


def test_the_target_needs_the_highest_partition_of_the_source() -> None:
    """The number of partitions is one more than the last number, under the prefixed name."""
    plan = MirrorPlan(source="s:1", topics=("a",), prefix="x.", checkpoint="/c")
    assert plan.needed({"a": {0: 5, 2: 7}}) == {"x.a": 3}
