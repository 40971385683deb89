"""The assignor `range`: each member has one range of each topic. Equal for topics of equal size, and not sticky."""

from __future__ import annotations

from collections.abc import Sequence

from echoless.coordinators.groups.consumer.assignors.inputs import AssignedTopic, Steps, Subscriber
from echoless.protocol.state_records.consumer_group_values import TopicIdPartition


def assign_ranges(members: Sequence[Subscriber], topics: Sequence[AssignedTopic]) -> Steps:
    """Deal out each topic in ranges, the first of which are longer by one if it does not divide."""
    given: dict[str, list[TopicIdPartition]] = {one.member_id: [] for one in members}
    ranked = sorted(members, key=lambda one: one.rank)
    for topic in topics:
        yield
        subscribed = [one.member_id for one in ranked if topic.name in one.topics]
        if not subscribed:
            continue
        least, longer = divmod(topic.partitions, len(subscribed))
        begin = 0
        for place, member_id in enumerate(subscribed):
            end = begin + least + (place < longer)
            given[member_id] += [(topic.topic_id, index) for index in range(begin, end)]
            begin = end
    return {member_id: frozenset(partitions) for member_id, partitions in given.items()}
