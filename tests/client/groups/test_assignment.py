"""Messages between the copiers of a group: Kafka's bytes, and each partition to exactly one member."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.client.groups.assignment import (
    assign,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from echoless.protocol.errors import DecodeError

TOPICS = st.sampled_from(["a", "b", "c", "d"])
WISHES = st.dictionaries(st.text(max_size=5), st.lists(TOPICS, unique=True), max_size=6)
COUNTS = st.dictionaries(TOPICS, st.integers(0, 12))


@given(WISHES, COUNTS)
def test_each_partition_has_one_owner(wishes, counts):
    """A member that wants the topic gets it, if there is one; equal input has equal output."""
    given_to = assign(wishes, counts)
    assert given_to == assign(dict(reversed(wishes.items())), counts)
    assert given_to.keys() == wishes.keys()
    owned = [one for partitions in given_to.values() for one in partitions]
    wanted = {topic for topics in wishes.values() for topic in topics}
    assert sorted(owned) == sorted(
        (topic, index) for topic in wanted & counts.keys() for index in range(counts[topic])
    )
    for member, partitions in given_to.items():
        assert {topic for topic, _ in partitions} <= {*wishes[member]}


@given(st.sets(st.text(max_size=5), min_size=1, max_size=6), COUNTS)
def test_equal_wishes_are_shared_evenly(members, counts):
    """No member has two partitions more than another."""
    sizes = [len(one) for one in assign({member: [*counts] for member in members}, counts).values()]
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(TOPICS), st.lists(st.tuples(TOPICS, st.integers(0, 2**31 - 1)), unique=True))
def test_bytes_survive(topics, partitions):
    """Everything that was written is read; a member without an assignment has none."""
    assert read_subscription(write_subscription(topics)) == tuple(topics)
    assert sorted(read_assignment(write_assignment(partitions))) == sorted(partitions)
    assert read_assignment(b"") == []


def test_bytes_are_those_of_other_clients():
    """aiokafka reads and writes the same."""
    from aiokafka.coordinator.protocol import (
        ConsumerProtocolMemberAssignment,
        ConsumerProtocolMemberMetadata,
    )

    metadata = ConsumerProtocolMemberMetadata(0, ["a", "b"], b"").encode()
    assert read_subscription(metadata) == ("a", "b")
    found = ConsumerProtocolMemberAssignment.decode(
        write_assignment([("a", 0), ("a", 2), ("b", 1)])
    )
    assert [(one.topic, one.partition) for one in found.partitions()] == [
        *(("a", 0), ("a", 2), ("b", 1))
    ]


@given(st.binary(max_size=40))
def test_foreign_bytes_are_refused_or_read(data):
    """Whatever a member sends, reading it ends with partitions or with `DecodeError`."""
    for read in (read_subscription, read_assignment):
        with contextlib.suppress(DecodeError):
            read(data)


@pytest.mark.parametrize("data", [b"\0", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\1\0\5a"])
def test_cut_bytes_are_refused(data):
    """Lengths that the bytes do not have are an error of the peer's."""
    with pytest.raises(DecodeError):
        read_subscription(data)
