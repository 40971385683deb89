"""Expiry of committed offsets, by the state of their group, and of groups that are left with none.

Expired offsets are removed by tombstones, and forgotten once these are committed. An offset that is being committed
never expires.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from echoless.coordinators.effects import LogLine
from echoless.coordinators.events import Now
from echoless.coordinators.groups import deletions
from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.deleted_topic import DeletedTopic
from echoless.coordinators.groups.effects import Effects
from echoless.coordinators.groups.group import CONSUMER, Group, GroupState
from echoless.coordinators.groups.log_names import shown
from echoless.coordinators.groups.records import GroupRecord
from echoless.coordinators.groups.store import GroupStore
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.classic_group_value import NO_TIMESTAMP
from echoless.protocol.state_records.group_keys import OffsetKey
from echoless.protocol.state_records.offset_value import NO_EXPIRY, OffsetValue

_OFFSETS_PER_SLICE: Final = 1_000
_GROUPS_PER_SLICE: Final = 100


def expire(store: GroupStore, config: GroupCoordinatorConfig, now: Now) -> Iterator[Effects]:
    """Expire what is too old in all groups, a slice at a time; requests are served in between."""
    effects: Effects = []
    looked_at = 0
    for count, group_id in enumerate(list(store.durable.groups), 1):
        for topic, partitions in _slices(store, group_id):
            places = _expired(store, config, group_id, topic, partitions, now=now)
            effects += _remove(store, group_id, places, "it is older than the retention time")
            looked_at += len(partitions)
            if looked_at >= _OFFSETS_PER_SLICE:
                looked_at = 0
                yield effects
                effects = []
        effects += _remove_if_unused(store, group_id, now)
        if count % _GROUPS_PER_SLICE == 0:
            yield effects
            effects = []
    yield effects


def forget_topic(store: GroupStore, topic: DeletedTopic) -> Iterator[Effects]:
    """Remove the offsets of a topic that was deleted, a slice at a time. Run again until it `is_forgotten`.

    The next run removes what this one cannot: offsets that are being committed, and those whose tombstones fail.
    """
    if topic.last_append is None:
        topic.last_append = store.appends.last_token
    is_forgotten = store.appends.oldest_token > topic.last_append
    for count, group_id in enumerate(list(store.durable.groups), 1):
        if _waits_for_markers(store, group_id, topic):
            is_forgotten = False
        in_transactions = [
            index for name, index in store.durable.pending_offsets(group_id) if name == topic.name
        ]
        for partitions in (*_slices_of(store, group_id, topic.name), *_sliced(in_transactions)):
            places = _outdated(store, group_id, topic, partitions)
            effects: Effects = []
            if places:
                is_forgotten = False
                effects = _remove_settled(store, group_id, places)
            yield effects
        if count % _GROUPS_PER_SLICE == 0:
            yield []
    topic.is_forgotten = is_forgotten


def _outdated(
    store: GroupStore, group_id: str, topic: DeletedTopic, partitions: list[int]
) -> list[tuple[str, int]]:
    """Choose the partitions with offsets that were all committed before the topic was deleted, in transactions or not."""
    durable = store.durable.groups.get(group_id)
    stored = durable.offsets.get(topic.name, {}) if durable is not None else {}
    found = []
    for partition in partitions:
        place = (topic.name, partition)
        values = store.durable.pending_values(group_id, place)
        if partition in stored:
            values.append(stored[partition])
        if values and all(one.commit_timestamp <= topic.deleted_ms for one in values):
            found.append(place)
    return found


def _waits_for_markers(store: GroupStore, group_id: str, topic: DeletedTopic) -> bool:
    """Whether an offset of the deleted topic cannot be removed: a transaction has one of its successor.

    A tombstone would take both.
    """
    durable = store.durable
    stored = (
        durable.groups[group_id].offsets.get(topic.name, {}) if group_id in durable.groups else {}
    )
    for place in durable.pending_offsets(group_id):
        if place[0] != topic.name:
            continue
        times = [one.commit_timestamp for one in durable.pending_values(group_id, place)]
        if place[1] in stored:
            times.append(stored[place[1]].commit_timestamp)
        if times and min(times) <= topic.deleted_ms < max(times):
            return True
    return False


def _remove_settled(store: GroupStore, group_id: str, places: list[tuple[str, int]]) -> Effects:
    """Remove offsets but for those that are being committed or removed; what transactions have of them goes as well."""
    group = store.find(group_id)
    pending = group.pending_offsets if group is not None else {}
    settled = [place for place in places if place not in pending]
    return _remove(store, group_id, settled, "its topic was deleted")


def _slices(store: GroupStore, group_id: str) -> Iterator[tuple[str, list[int]]]:
    """Topics with some of their partitions each."""
    durable = store.durable.groups.get(group_id)
    if durable is None:
        return
    for topic in list(durable.offsets):
        for partitions in _slices_of(store, group_id, topic):
            yield topic, partitions


def _slices_of(store: GroupStore, group_id: str, topic: str) -> Iterator[list[int]]:
    """Partitions of one topic."""
    durable = store.durable.groups.get(group_id)
    partitions = list(durable.offsets.get(topic, {})) if durable is not None else []
    yield from _sliced(partitions)


def _sliced(partitions: list[int]) -> Iterator[list[int]]:
    for begin in range(0, len(partitions), _OFFSETS_PER_SLICE):
        yield partitions[begin : begin + _OFFSETS_PER_SLICE]


def _expired(
    store: GroupStore,
    config: GroupCoordinatorConfig,
    group_id: str,
    topic: str,
    partitions: list[int],
    *,
    now: Now,
) -> list[tuple[str, int]]:
    group = store.find(group_id)
    durable = store.durable.groups.get(group_id)
    if group is None or durable is None or _keeps_all(group, topic):
        return []
    stored, in_transactions = (
        durable.offsets.get(topic, {}),
        store.durable.pending_offsets(group_id),
    )
    return [
        (topic, partition)
        for partition in partitions
        if partition in stored
        and (topic, partition) not in group.pending_offsets
        and (topic, partition) not in in_transactions
        and _is_expired(group, stored[partition], config, now)
    ]


def _is_expired(group: Group, value: OffsetValue, config: GroupCoordinatorConfig, now: Now) -> bool:
    if value.expire_timestamp != NO_EXPIRY:
        return now.wall_ms >= value.expire_timestamp
    since = value.commit_timestamp
    if _had_members(group) and group.state_timestamp != NO_TIMESTAMP:
        since = group.state_timestamp
    return now.wall_ms - since >= config.offsets_retention_ms


def _remove(
    store: GroupStore, group_id: str, places: list[tuple[str, int]], reason: str
) -> Effects:
    group = store.find(group_id)
    if group is None or not places:
        return []
    topic = places[0][0]
    line = f"group {shown(group_id)} loses {len(places)} offsets of topic {shown(topic)}: {reason}"
    records: list[GroupRecord] = [
        (OffsetKey(group_id, topic, partition), None) for _, partition in places
    ]
    removed = partial(_removed, store, group_id)
    return [LogLine(line), store.appends.begin(group, records, removed)]


def _removed(store: GroupStore, group_id: str, code: ErrorCode, now: Now) -> Effects:
    return _remove_if_unused(store, group_id, now) if code is ErrorCode.NONE else []


def _remove_if_unused(store: GroupStore, group_id: str, now: Now) -> Effects:
    """Remove a group that has no members, no offsets and nothing under way."""
    group = store.find(group_id)
    durable = store.durable.groups.get(group_id)
    if group is None:
        return []
    if (
        group.is_empty
        and group.state is GroupState.EMPTY
        and not group.pending_members
        and not group.appends
        and (durable is None or not durable.offsets)
        and not store.durable.pending_offsets(group_id)
    ):
        effects: Effects = []
        if durable is not None:
            line = f"group {shown(group_id)} has neither members nor offsets, and is removed"
            effects.append(LogLine(line))
        return effects + deletions.remove_group(store, group, now)
    store.settle(group)
    return []


def _had_members(group: Group) -> bool:
    return group.state is GroupState.EMPTY and group.protocol_type is not None


def _keeps_all(group: Group, topic: str) -> bool:
    """Whether no offset of the topic expires, in this state of the group."""
    if group.consumer is not None:
        return topic in group.consumer.subscribed()
    if group.state is GroupState.EMPTY:
        return False
    if group.state is not GroupState.STABLE or group.protocol_type != CONSUMER:
        return True
    subscribed = group.subscribed()
    return subscribed is None or topic in subscribed
