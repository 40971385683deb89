"""The target assignment of a group: made once for each epoch, by the assignor that most members prefer.

A large one takes seconds of processor time, so it is made in steps, between which the shell serves other groups. The
group itself waits as it waits for an append: nothing of it changes meanwhile, so the target fits when it is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from echoless.coordinators.groups.consumer.assignors import ASSIGNORS, DEFAULT_ASSIGNOR
from echoless.coordinators.groups.consumer.assignors.inputs import AssignedTopic, Subscriber
from echoless.coordinators.groups.consumer.group import ConsumerGroup
from echoless.coordinators.groups.consumer.topics import KnownTopics
from echoless.protocol.state_records.consumer_group_values import (
    MemberValue,
    TargetEpochValue,
    TargetValue,
)
from echoless.protocol.state_records.group_keys import TargetEpochKey, TargetKey

WORK_AT_ONCE: Final = 2_000
"""Subscriptions of all members and partitions, together, that are assigned in one go."""


def assignor_of(group: ConsumerGroup) -> str:
    """The name that most members give; on a tie the default, then the first in order.

    A member that gives none counts for the default, and so does one that was stored with an unknown one.
    """
    names = [one.assignor or DEFAULT_ASSIGNOR for one in group.state.members.values()]
    votes = Counter(name if name in ASSIGNORS else DEFAULT_ASSIGNOR for name in names)
    if not votes:
        return DEFAULT_ASSIGNOR
    return min(votes, key=lambda name: (-votes[name], name != DEFAULT_ASSIGNOR, name))


def unknown_vote(members: Mapping[str, MemberValue]) -> tuple[str, str] | None:
    """A member that was stored with an assignor that is not known, and its name; None if there is none."""
    for member_id, value in members.items():
        if value.assignor is not None and value.assignor not in ASSIGNORS:
            return member_id, value.assignor
    return None


class TargetAssignment:
    """The target of a group's epoch, in the making."""

    def __init__(self, group: ConsumerGroup, topics: KnownTopics) -> None:
        """Look at the topics as they are now; those that do not exist are left out."""
        self._group = group
        known = {name: topics.find(name) for name in group.subscribed()}
        self._topics = [
            AssignedTopic(name, one.topic_id, one.partitions)
            for name, one in sorted(known.items())
            if one is not None
        ]

    @property
    def is_small(self) -> bool:
        """Whether it is made in less time than others notice."""
        state = self._group.state
        names = sum([len(one.topic_names) for one in state.members.values()])
        matched = sum([len(one.topics) for one in state.regexes.values()]) * len(state.members)
        work = names + matched + sum([one.partitions for one in self._topics])
        return work <= WORK_AT_ONCE

    def steps(self) -> Iterator[None]:
        """Make the target and put it into the group."""
        group, members = self._group, []
        for member_id, value in group.state.members.items():
            yield
            target = group.state.targets.get(member_id, frozenset())
            topics = group.topics_of(member_id)
            members.append(Subscriber(member_id, value.instance_id, topics, target))
        found = yield from ASSIGNORS[assignor_of(group)](members, self._topics)
        for member_id, partitions in found.items():
            yield
            group.put(TargetKey(group.group_id, member_id), TargetValue(partitions))
        group.put(TargetEpochKey(group.group_id), TargetEpochValue(group.state.number))
