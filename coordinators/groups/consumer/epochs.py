"""The epochs of a consumer group: each change of its members or of what they subscribe to begins one."""

from __future__ import annotations

from echoless.coordinators.events import Now
from echoless.coordinators.groups.consumer import regexes
from echoless.coordinators.groups.consumer.group import ConsumerGroup
from echoless.coordinators.groups.consumer.topics import KnownTopics, metadata_hash
from echoless.protocol.state_records.consumer_group_values import EpochValue
from echoless.protocol.state_records.group_keys import EpochKey


def begin_epoch(group: ConsumerGroup, topics: KnownTopics, now: Now) -> None:
    """Begin a new epoch if members, subscriptions or the topics that are subscribed to have changed."""
    regexes.store_matches(group, now)
    state = group.state
    is_same = not state.members or group.topics_version == topics.version
    if is_same and not group.must_bump:
        return
    group.topics_version = topics.version
    hashed = metadata_hash(group.subscribed(), topics)
    known = 0 if state.epoch is None else state.epoch.metadata_hash
    if group.must_bump or hashed != known:
        group.must_bump = False
        group.put(EpochKey(group.group_id), EpochValue(state.number + 1, hashed))
        group.topics_version = topics.version
