"""The assignors over random groups: everything is given once, evenly, and little moves."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.coordinators.groups.consumer.assignors import ASSIGNORS, assigned_at_once
from echoless.coordinators.groups.consumer.assignors.inputs import AssignedTopic, Subscriber, Target

uniform = partial(assigned_at_once, "uniform")
TOPICS = tuple("abcd")
sizes = st.lists(st.integers(0, 9), min_size=1, max_size=4)


def topics_of(counts: list[int]) -> list[AssignedTopic]:
    return [
        AssignedTopic(name, name.encode() * 16, count)
        for name, count in zip(TOPICS, counts, strict=False)
    ]


@st.composite
def groups(draw: st.DrawFn, *, is_mixed: bool) -> tuple[list[Subscriber], list[AssignedTopic]]:
    """Members of which some have what another assignment, of other topics, gave them."""
    topics = topics_of(draw(sizes))
    names = [one.name for one in topics]
    count = draw(st.integers(1, 7))
    members = []
    former: dict[int, set[tuple[bytes, int]]] = {rank: set() for rank in range(count)}
    for one in topics:
        for index in range(one.partitions + 2):
            owner = draw(st.integers(-1, count - 1))
            if owner >= 0:
                former[owner].add((one.topic_id, index))
    for rank in range(count):
        subscribed = draw(st.sets(st.sampled_from(names))) if is_mixed else names
        instance = draw(st.none() | st.just(f"i{rank}"))
        members.append(
            Subscriber(f"m{rank}", instance, frozenset(subscribed), frozenset(former[rank]))
        )
    return members, topics


def check_complete(members: list[Subscriber], topics: list[AssignedTopic], target: Target) -> None:
    """Every partition that a member subscribes to is given to one of its subscribers."""
    given_to = [(partition, one) for one in members for partition in target[one.member_id]]
    assert len(given_to) == len({partition for partition, _ in given_to})
    names = {one.topic_id: one.name for one in topics}
    assert all(names[topic_id] in one.topics for (topic_id, _), one in given_to)
    wanted = {
        (one.topic_id, index)
        for one in topics
        for index in range(one.partitions)
        if any(one.name in member.topics for member in members)
    }
    assert wanted == {partition for partition, _ in given_to}


@pytest.mark.parametrize("name", ASSIGNORS)
@given(data=st.data(), is_mixed=st.booleans())
def test_everything_is_given_once_and_always_to_the_same(name, data, is_mixed):
    """Whatever the order of the members and topics."""
    members, topics = data.draw(groups(is_mixed=is_mixed))
    target = assigned_at_once(name, members, topics)
    check_complete(members, topics, target)
    assert assigned_at_once(name, members[::-1], topics[::-1]) == target


@given(groups(is_mixed=False))
def test_equal_members_have_equal_shares_and_as_little_moves_as_can(group):
    """Shares differ by one at most; no member loses more than it has to."""
    members, topics = group
    target = uniform(members, topics)
    shares = sorted(len(one) for one in target.values())
    assert shares[-1] - shares[0] <= 1
    existing = {(one.topic_id, index) for one in topics for index in range(one.partitions)}
    kept = sum(len(one.target & target[one.member_id]) for one in members)
    least, longer = divmod(len(existing), len(members))
    had = sorted((len(one.target & existing) for one in members), reverse=True)
    most_kept = sum(min(count, least + (rank < longer)) for rank, count in enumerate(had))
    assert kept == most_kept


@given(groups(is_mixed=True))
def test_no_single_move_evens_out_more(group):
    """With different subscriptions: no partition would be better off with another of its subscribers."""
    members, topics = group
    target = uniform(members, topics)
    names = {one.topic_id: one.name for one in topics}
    for one in members:
        for topic_id, _ in target[one.member_id]:
            for other in members:
                if names[topic_id] in other.topics:
                    assert len(target[other.member_id]) + 2 > len(target[one.member_id])


@given(groups(is_mixed=True))
def test_a_target_is_its_own_next_target(group):
    """Nothing moves without a reason."""
    members, topics = group
    target = uniform(members, topics)
    again = [one._replace(target=target[one.member_id]) for one in members]
    assert uniform(again, topics) == target


@settings(max_examples=20)
@given(st.integers(2, 30), st.integers(1, 200))
def test_a_member_more_or_less_moves_one_share(members, partitions):
    """One that joins takes its share from the others; one that leaves gives its own to them."""
    topics = [AssignedTopic("a", b"a" * 16, partitions)]
    names = frozenset("a")

    def group(count: int, target: Target) -> list[Subscriber]:
        ids = [f"m{rank:02}" for rank in range(count)]
        return [Subscriber(one, None, names, target.get(one, frozenset())) for one in ids]

    before = uniform(group(members, {}), topics)
    after = uniform(group(members + 1, before), topics)
    moved = [len(before[one] - after[one]) for one in before]
    assert sum(moved) <= math.ceil(partitions / (members + 1))
    back = uniform(group(members, after), topics)
    lost = [len(after[one] - back[one]) for one in before]
    assert sum(lost) == 0


def test_ranges_are_contiguous_and_static_members_come_first():
    """The instance id keeps the place of a member in the order."""
    topics = topics_of([5])
    names = frozenset("a")
    members = [
        Subscriber("0", None, names, frozenset()),
        Subscriber("9", "i", names, frozenset()),
    ]
    target = assigned_at_once("range", members, topics)
    assert {index for _, index in target["9"]} == {0, 1, 2}
    assert {index for _, index in target["0"]} == {3, 4}
    assert Counter(map(len, target.values())) == {3: 1, 2: 1}
