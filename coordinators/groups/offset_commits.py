"""OffsetCommit: who may commit in which state of the group, and the append of what was accepted.

Invariant: a group with members takes offsets only from a member that was given its present generation.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, NamedTuple

from echoless.coordinators.effects import Reply
from echoless.coordinators.events import Now
from echoless.coordinators.groups.answers import OffsetCommitAnswer
from echoless.coordinators.groups.append_errors import commit_code
from echoless.coordinators.groups.bounds import GroupBounds
from echoless.coordinators.groups.classic import sessions
from echoless.coordinators.groups.classic.membership import generation_error
from echoless.coordinators.groups.consumer.descriptions import commit_error, stale_partitions
from echoless.coordinators.groups.consumer.topics import KnownTopics
from echoless.coordinators.groups.effects import Effects
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.prepared_commit import (
    can_be_packed,
    expire_timestamp,
    offset_record,
)
from echoless.coordinators.groups.requests import OffsetCommit
from echoless.coordinators.groups.store import GroupStore
from echoless.coordinators.groups.usage import NOTHING, Usage, metadata_size, offset_size
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.fields import STRING_BYTES_MAX


class _More(NamedTuple):
    """The bytes of metadata, and the offsets, that a request adds to its group."""

    size: int
    offsets: AbstractSet[tuple[str, int]]

    @property
    def usage(self) -> Usage:
        """The amount that is held in addition while it is being stored."""
        if self is _NO_MORE or (self.size <= 0 and not self.offsets):
            return NOTHING
        return Usage(metadata=max(self.size, 0), offsets=len(self.offsets))


_NO_MORE: Final = _More(0, frozenset())


class _Room(NamedTuple):
    has_bytes: bool
    has_offsets: bool


_ENOUGH: Final = _Room(has_bytes=True, has_offsets=True)


class OffsetCommits:
    """Answers OffsetCommit once the offsets are committed: all of a request, or none."""

    def __init__(self, bounds: GroupBounds, topics: KnownTopics) -> None:
        self._bounds = bounds
        self._topics = topics

    def handle(self, store: GroupStore, reply_id: int, request: OffsetCommit, now: Now) -> Effects:
        """Append the offsets of those who may commit; metadata that is not taken fails its partition alone."""
        code, group = self._admit(store, request)
        if group is None or code is not ErrorCode.NONE:
            refused = (code,) * len(request.partitions)
            return [Reply(reply_id, OffsetCommitAnswer(refused))]
        member = group.members.get(request.member_id)
        effects = [] if member is None else sessions.extend(group, member, now)
        more = _more(store, request, self._bounds.config.offset_metadata_max_bytes)
        codes = self._codes(store, group, request, more)
        accepted = [one for one, code in zip(request.partitions, codes, strict=True) if not code]
        if not accepted:
            return effects + _stored(reply_id, codes, ErrorCode.NONE, now)
        if len(accepted) < len(codes):
            more = _more(store, request._replace(partitions=tuple(accepted)), STRING_BYTES_MAX)
        stored = partial(_stored, reply_id, codes)
        prepared = request.prepared
        if prepared is not None and len(accepted) == len(codes):
            append = store.appends.begin(group, prepared.records, stored, more.usage, prepared)
        else:
            expire_ms = expire_timestamp(request, now.wall_ms)
            records = [
                offset_record(request.group_id, one, expire_ms, now.wall_ms) for one in accepted
            ]
            append = store.appends.begin(group, records, stored, more.usage)
        return [*effects, append]

    def _codes(
        self, store: GroupStore, group: Group, request: OffsetCommit, more: _More
    ) -> list[ErrorCode]:
        """The errors of single partitions."""
        longest = self._bounds.config.offset_metadata_max_bytes
        room = self._room_for(store, request, more)
        if not room.has_bytes:
            longest = 0
        codes = [
            ErrorCode.NONE
            if len(one.metadata) <= longest and can_be_packed(one.metadata)
            else ErrorCode.OFFSET_METADATA_TOO_LARGE
            for one in request.partitions
        ]
        if not room.has_offsets:
            for place, one in enumerate(request.partitions):
                if (one.topic, one.partition) in more.offsets:
                    codes[place] = ErrorCode.POLICY_VIOLATION
        if group.consumer is not None:
            stale = stale_partitions(group.consumer, request, self._topics)
            for place, is_stale in enumerate(stale):
                if is_stale:
                    codes[place] = ErrorCode.STALE_MEMBER_EPOCH
        return codes

    def _room_for(self, store: GroupStore, request: OffsetCommit, more: _More) -> _Room:
        """Whether there is room for what the request adds to its group.

        A group whose sharer has no room goes over to another one that commits to it and has room for the whole.
        """
        shares, group_id, sharer = store.shares, request.group_id, request.sharer
        shares.adopt(group_id, sharer)
        if more is _NO_MORE or (more.size <= 0 and not more.offsets):
            return _ENOUGH
        account = shares.account(group_id)
        room = self._room_of(account.sharer, more.size, len(more.offsets))
        if not all(room) and account.sharer != sharer:
            held = account.held
            size, offsets = held.metadata + more.size, held.offsets + len(more.offsets)
            if all(self._room_of(sharer, size, offsets)):
                shares.give(group_id, sharer)
                return _ENOUGH
        return room

    def _room_of(self, sharer: str, size: int, offsets: int) -> _Room:
        bounds = self._bounds
        return _Room(
            bounds.has_room_for_metadata(size, sharer), bounds.has_room_for_offsets(offsets, sharer)
        )

    def _admit(self, store: GroupStore, request: OffsetCommit) -> tuple[ErrorCode, Group | None]:
        if len(request.partitions) > self._bounds.config.commit_partitions_max:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE, None
        group = store.find(request.group_id)
        if group is None:
            return self._admit_to_new_group(store, request)
        return _admit_to_group(group, request), group

    def _admit_to_new_group(
        self, store: GroupStore, request: OffsetCommit
    ) -> tuple[ErrorCode, Group | None]:
        if request.generation_id >= 0:
            if request.knows_missing_groups:
                return ErrorCode.GROUP_ID_NOT_FOUND, None
            return ErrorCode.ILLEGAL_GENERATION, None
        if not self._bounds.has_room_for_group(request.sharer):
            return ErrorCode.POLICY_VIOLATION, None
        return ErrorCode.NONE, store.create(request.group_id, request.sharer)


def _more(store: GroupStore, request: OffsetCommit, longest: int) -> _More:
    durable = store.durable.groups.get(request.group_id)
    stored = durable.offsets if durable is not None else {}
    size, offsets = 0, set()
    for topic, partition, _, _, metadata in request.partitions:
        of_topic = stored.get(topic)
        replaced = None if of_topic is None else of_topic.get(partition)
        if replaced is None:
            offsets.add((topic, partition))
        if metadata and len(metadata) <= longest:
            size += metadata_size(metadata) - offset_size(replaced)
    return _More(size, offsets) if size or offsets else _NO_MORE


def _admit_to_group(group: Group, request: OffsetCommit) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if group.consumer is not None:
        return commit_error(group.consumer, request)
    if group.state is GroupState.EMPTY and request.generation_id < 0:
        return ErrorCode.NONE
    code = generation_error(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    if code is ErrorCode.NONE and group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return code


def _stored(reply_id: int, codes: list[ErrorCode], code: ErrorCode, _now: Now) -> Effects:
    answered = commit_code(code)
    found = tuple([one or answered for one in codes])
    return [Reply(reply_id, OffsetCommitAnswer(found))]
