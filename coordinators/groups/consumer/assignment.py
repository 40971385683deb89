"""The target assignment of a group: made once for each epoch, by the assignor that most members prefer."""

from __future__ import annotations

from collections import Counter

from coordinators.groups.consumer.assignors import ASSIGNORS, DEFAULT_ASSIGNOR
from coordinators.groups.consumer.assignors.inputs import AssignedTopic, Subscriber
from coordinators.groups.consumer.group import ConsumerGroup
from coordinators.groups.consumer.topics import KnownTopics
from protocol.consumer_offsets.consumer_values import TargetEpochValue, TargetValue
from protocol.consumer_offsets.keys import TargetEpochKey, TargetKey


def assignor_of(group: ConsumerGroup) -> str:
    """The name that most members give; on a tie the default, then the first in order."""
    votes = Counter(one.assignor or DEFAULT_ASSIGNOR for one in group.state.members.values())
    if not votes:
        return DEFAULT_ASSIGNOR
    return min(votes, key=lambda name: (-votes[name], name != DEFAULT_ASSIGNOR, name))


def assign(group: ConsumerGroup, topics: KnownTopics) -> None:
    """Make the target of the group's epoch. Subscribed topics that do not exist are left out."""
    state = group.state
    known = {name: topics.find(name) for name in group.subscribed()}
    existing = [
        AssignedTopic(name, one.topic_id, one.partitions)
        for name, one in sorted(known.items())
        if one is not None
    ]
    members = [
        Subscriber(
            member_id,
            value.instance_id,
            group.topics_of(member_id),
            state.targets.get(member_id, frozenset()),
        )
        for member_id, value in state.members.items()
    ]
    target = ASSIGNORS[assignor_of(group)](members, existing)
    for member_id, partitions in target.items():
        group.put(TargetKey(group.group_id, member_id), TargetValue(partitions))
    group.put(TargetEpochKey(group.group_id), TargetEpochValue(state.number))
