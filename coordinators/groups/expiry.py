"""Expiry of committed offsets, by the state of their group, and of groups that are left with none.

Expired offsets are removed by tombstones, and forgotten once these are committed. An offset that is being committed
never expires.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from echoless.coordinators.events import Now
from echoless.coordinators.groups.deleted_topic import DeletedTopic
from echoless.coordinators.groups.deletions import Deletions
from echoless.coordinators.groups.effects import GroupEffect
from echoless.coordinators.groups.group import CONSUMER, Group, GroupState
from echoless.coordinators.groups.groups import Groups, Record
from echoless.coordinators.groups.log_names import shown
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.classic_group_value import NO_TIMESTAMP
from echoless.protocol.state_records.group_keys import OffsetKey
from echoless.protocol.state_records.offset_value import NO_EXPIRY, OffsetValue

_OFFSETS_PER_SLICE: Final = 1_000
_GROUPS_PER_SLICE: Final = 100


class Expiry:
    """Walks all groups, a slice at a time; requests are served in between."""

    def __init__(self, groups: Groups, deletions: Deletions) -> None:
        self._groups = groups
        self._deletions = deletions
        self._looked_at = 0
        """Offsets since the last slice has ended."""

    def expire(self, now: Now) -> Iterator[list[GroupEffect]]:
        """Expire what is too old."""
        for count, group_id in enumerate(list(self._groups.durable.groups), 1):
            for topic, partitions in self._slices(group_id):
                self._groups.now = now
                places = self._expired(group_id, topic, partitions)
                self._remove(group_id, places, "it is older than the retention time")
                self._looked_at += len(partitions)
                if self._looked_at >= _OFFSETS_PER_SLICE:
                    self._looked_at = 0
                    yield self._groups.take_effects()
            self._groups.now = now
            self._remove_if_unused(group_id)
            if count % _GROUPS_PER_SLICE == 0:
                yield self._groups.take_effects()
        yield self._groups.take_effects()

    def forget_topic(self, topic: DeletedTopic, now: Now) -> Iterator[list[GroupEffect]]:
        """Remove the offsets of a topic that was deleted. Run again until it `is_forgotten`.

        The next run removes what this one cannot: offsets that are being committed, and those whose tombstones fail.
        """
        if topic.last_append is None:
            topic.last_append = self._groups.last_append
        is_forgotten = self._groups.oldest_pending_append() > topic.last_append
        for count, group_id in enumerate(list(self._groups.durable.groups), 1):
            for partitions in self._slices_of(group_id, topic.name):
                self._groups.now = now
                places = self._outdated(group_id, topic, partitions)
                if places:
                    is_forgotten = False
                    self._remove_settled(group_id, places)
                yield self._groups.take_effects()
            if count % _GROUPS_PER_SLICE == 0:
                yield self._groups.take_effects()
        topic.is_forgotten = is_forgotten

    def _outdated(
        self, group_id: str, topic: DeletedTopic, partitions: list[int]
    ) -> list[tuple[str, int]]:
        """Choose the offsets that were committed before the topic was deleted."""
        durable = self._groups.durable.groups.get(group_id)
        stored = durable.offsets.get(topic.name, {}) if durable is not None else {}
        return [
            (topic.name, partition)
            for partition in partitions
            if partition in stored and stored[partition].commit_timestamp <= topic.deleted_ms
        ]

    def _remove_settled(self, group_id: str, places: list[tuple[str, int]]) -> None:
        """Remove offsets but for those that are being committed or removed."""
        group = self._groups.find(group_id)
        pending = group.pending_offsets if group is not None else {}
        settled = [place for place in places if place not in pending]
        self._remove(group_id, settled, "its topic was deleted")

    def _slices(self, group_id: str) -> Iterator[tuple[str, list[int]]]:
        """Topics with some of their partitions each."""
        durable = self._groups.durable.groups.get(group_id)
        if durable is None:
            return
        for topic in list(durable.offsets):
            for partitions in self._slices_of(group_id, topic):
                yield topic, partitions

    def _slices_of(self, group_id: str, topic: str) -> Iterator[list[int]]:
        """Partitions of one topic."""
        durable = self._groups.durable.groups.get(group_id)
        partitions = list(durable.offsets.get(topic, {})) if durable is not None else []
        for begin in range(0, len(partitions), _OFFSETS_PER_SLICE):
            yield partitions[begin : begin + _OFFSETS_PER_SLICE]

    def _expired(self, group_id: str, topic: str, partitions: list[int]) -> list[tuple[str, int]]:
        group = self._groups.find(group_id)
        durable = self._groups.durable.groups.get(group_id)
        if group is None or durable is None or _keeps_all(group, topic):
            return []
        stored = durable.offsets.get(topic, {})
        return [
            (topic, partition)
            for partition in partitions
            if partition in stored
            and (topic, partition) not in group.pending_offsets
            and self._is_expired(group, stored[partition])
        ]

    def _is_expired(self, group: Group, value: OffsetValue) -> bool:
        now_ms = self._groups.now.wall_ms
        if value.expire_timestamp != NO_EXPIRY:
            return now_ms >= value.expire_timestamp
        since = value.commit_timestamp
        if _had_members(group) and group.state_timestamp != NO_TIMESTAMP:
            since = group.state_timestamp
        return now_ms - since >= self._groups.config.offsets_retention_ms

    def _remove(self, group_id: str, places: list[tuple[str, int]], reason: str) -> None:
        group = self._groups.find(group_id)
        if group is None or not places:
            return
        topic = places[0][0]
        self._groups.note(
            f"group {shown(group_id)} loses {len(places)} offsets of topic {shown(topic)}: {reason}"
        )
        records: list[Record] = [
            (OffsetKey(group_id, topic, partition), None) for _, partition in places
        ]
        self._groups.append(group, records, partial(self._removed, group_id))

    def _removed(self, group_id: str, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self._remove_if_unused(group_id)

    def _remove_if_unused(self, group_id: str) -> None:
        """Remove a group that has no members, no offsets and nothing under way."""
        group = self._groups.find(group_id)
        durable = self._groups.durable.groups.get(group_id)
        if group is None:
            return
        if (
            group.is_empty
            and group.state is GroupState.EMPTY
            and not group.pending_members
            and not group.appends
            and (durable is None or not durable.offsets)
        ):
            if durable is not None:
                self._groups.note(
                    f"group {shown(group_id)} has neither members nor offsets, and is removed"
                )
            self._deletions.remove_group(group)
        else:
            self._groups.settle(group)


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
