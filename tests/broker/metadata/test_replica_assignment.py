"""Replica assignment: leaders spread evenly, explicit assignments checked."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.metadata.replica_assignment import assign_replicas, check_assignment
from echoless.protocol.errors import ErrorCode, KafkaError


@given(
    broker_count=st.integers(1, 7),
    data=st.data(),
    partitions=st.integers(1, 40),
    seed=st.integers(),
)
def test_leaders_and_replicas_are_spread_evenly(
    broker_count: int, data: st.DataObject, partitions: int, seed: int
) -> None:
    """Each partition has distinct replicas; no broker leads two partitions more than another."""
    factor = data.draw(st.integers(1, broker_count))
    brokers = [10 * n for n in range(broker_count)]
    assignment = assign_replicas(brokers, range(partitions), factor, Random(seed))
    assert list(assignment) == list(range(partitions))
    for replicas in assignment.values():
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= set(brokers)
    leaders = Counter(replicas[0] for replicas in assignment.values())
    assert max(leaders.values()) - min(leaders[broker] for broker in brokers) <= 1


@given(
    rack_of=st.dictionaries(st.integers(0, 20), st.sampled_from("abcd"), min_size=1, max_size=9),
    data=st.data(),
    partitions=st.integers(1, 30),
    seed=st.integers(),
)
def test_replicas_are_spread_over_racks(
    rack_of: dict[int, str], data: st.DataObject, partitions: int, seed: int
) -> None:
    """A rack gets another replica of a partition only when no rack with room has fewer."""
    factor = data.draw(st.integers(1, len(rack_of)))
    brokers_in = Counter(rack_of.values())
    assignment = assign_replicas(rack_of, range(partitions), factor, Random(seed), rack_of)
    for replicas in assignment.values():
        assert len(replicas) == len(set(replicas)) == factor
        counts = Counter(rack_of[replica] for replica in replicas)
        with_room = [counts[rack] for rack in brokers_in if counts[rack] < brokers_in[rack]]
        assert not with_room or max(counts.values()) <= min(with_room) + 1
    leaders = Counter(replicas[0] for replicas in assignment.values())
    assert max(leaders.values()) - min(leaders[broker] for broker in rack_of) <= 1


@given(racks=st.integers(1, 4), per_rack=st.integers(1, 3), data=st.data(), seed=st.integers())
def test_equal_racks_give_every_broker_the_same_load(
    racks: int, per_rack: int, data: st.DataObject, seed: int
) -> None:
    """With as many partitions as brokers, each broker holds as many replicas as a partition has."""
    rack_of = {broker: f"rack {broker % racks}" for broker in range(racks * per_rack)}
    factor = data.draw(st.integers(1, len(rack_of)))
    assignment = assign_replicas(rack_of, range(len(rack_of)), factor, Random(seed), rack_of)
    load = Counter(replica for replicas in assignment.values() for replica in replicas)
    assert set(load.values()) == {factor}


@given(partitions=st.integers(1, 20), seed=st.integers())
def test_racks_count_only_where_every_broker_has_one(partitions: int, seed: int) -> None:
    """While racks are introduced one broker at a time, topics are spread as without them."""
    brokers, some_racks = [1, 2, 3, 4], {1: "a", 2: "a", 3: "b", 4: None}
    with_some = assign_replicas(brokers, range(partitions), 2, Random(seed), some_racks)
    assert with_some == assign_replicas(brokers, range(partitions), 2, Random(seed))


def test_followers_change_from_round_to_round() -> None:
    """When a broker dies, more than one other takes over from it."""
    assignment = assign_replicas([1, 2, 3, 4], range(12), 2, Random(0))
    followers = {replicas[1] for replicas in assignment.values() if replicas[0] == 1}
    assert len(followers) == 3


def test_each_place_of_the_pattern_is_worked_out_once() -> None:
    """10,000 partitions held the event loop for 66 ms when each was worked out alone."""
    assignment = assign_replicas([1, 2, 3], range(10_000), 2, Random(0))
    assert len({id(replicas) for replicas in assignment.values()}) == 3 * 2


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-1, 1, ErrorCode.INVALID_PARTITIONS),
        (10_001, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -1, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 3, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_numbers_that_cannot_be(partitions: int, factor: int, code: ErrorCode) -> None:
    """A topic has at least one partition, and no more replicas than living brokers."""
    with pytest.raises(KafkaError) as failure:
        assign_replicas([1, 2], range(partitions), factor, Random(0))
    assert failure.value.code is code


def test_an_explicit_assignment_is_taken_as_it_is() -> None:
    """It is used in the order of the partitions."""
    checked = check_assignment({1: [2, 1], 0: [1, 2]}, range(2), [1, 2])
    assert list(checked.items()) == [(0, (1, 2)), (1, (2, 1))]


@pytest.mark.parametrize(
    "assignment",
    [
        {},
        {0: [1]},
        {0: [1], 2: [1]},
        {0: [1], 1: [1], 2: [1]},
        {0: [], 1: []},
        {0: [1, 1], 1: [1, 2]},
        {0: [1], 1: [1, 2]},
        {0: [1], 1: [3]},
    ],
)
def test_explicit_assignments_that_cannot_be(assignment: dict[int, list[int]]) -> None:
    """Missing partitions, no replicas, one broker twice, unequal numbers, unknown brokers."""
    with pytest.raises(KafkaError) as failure:
        check_assignment(assignment, range(2), [1, 2])
    assert failure.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
