"""OffsetDelete and DeleteGroups: offsets and groups that are removed on request, by tombstones."""

from __future__ import annotations

from functools import partial
from typing import Final

from echoless.coordinators.groups.answers import DeleteAnswer, OffsetDeleteAnswer
from echoless.coordinators.groups.append_errors import group_code
from echoless.coordinators.groups.group import CONSUMER, Group, GroupState
from echoless.coordinators.groups.groups import Groups, Record
from echoless.coordinators.groups.log_names import shown
from echoless.coordinators.groups.membership import Membership
from echoless.coordinators.groups.requests import DeleteGroup, OffsetDelete
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.group_keys import GroupKey, OffsetKey

_TOMBSTONES_PER_APPEND: Final = 1_000


class Deletions:
    """Removes offsets and groups. An answer waits for its tombstones."""

    def __init__(self, groups: Groups, membership: Membership) -> None:
        self._groups = groups
        self._membership = membership

    # --- offsets

    def delete_offsets(self, reply_id: int, request: OffsetDelete) -> None:
        """Remove the offsets of topics that no member subscribes to."""
        group = self._groups.find(request.group_id)
        code = self._flaw(group, request)
        if group is None or code is not ErrorCode.NONE:
            self._groups.reply(reply_id, OffsetDeleteAnswer(code))
            return
        codes = [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_in_use(group, topic) else ErrorCode.NONE
            for topic, _ in request.partitions
        ]
        records: list[Record] = [
            (OffsetKey(group.group_id, topic, partition), None)
            for (topic, partition), code in zip(request.partitions, codes, strict=True)
            if code is ErrorCode.NONE and self._has_offset(group, topic, partition)
        ]
        if records:
            deleted = partial(self._offsets_deleted, reply_id, codes)
            self._groups.append(group, records, deleted)
        else:
            self._offsets_deleted(reply_id, codes, ErrorCode.NONE)

    def _flaw(self, group: Group | None, request: OffsetDelete) -> ErrorCode:
        if group is None or group.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if len(request.partitions) > self._groups.config.commit_partitions_max:
            return ErrorCode.INVALID_REQUEST
        if group.consumer is None and not group.is_empty and group.protocol_type != CONSUMER:
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE

    def _has_offset(self, group: Group, topic: str, partition: int) -> bool:
        durable = self._groups.durable.groups.get(group.group_id)
        is_stored = durable is not None and partition in durable.offsets.get(topic, {})
        return is_stored or (topic, partition) in group.pending_offsets

    def _offsets_deleted(self, reply_id: int, codes: list[ErrorCode], code: ErrorCode) -> None:
        answered = group_code(code)
        if answered is not ErrorCode.NONE:
            codes = [answered if one is ErrorCode.NONE else one for one in codes]
        self._groups.reply(reply_id, OffsetDeleteAnswer(ErrorCode.NONE, tuple(codes)))

    # --- groups

    def delete_group(self, reply_id: int, request: DeleteGroup) -> None:
        """Remove a group that has no members, with all its offsets."""
        group = self._groups.find(request.group_id)
        if group is None or group.state is GroupState.DEAD:
            self._groups.reply(reply_id, DeleteAnswer(ErrorCode.GROUP_ID_NOT_FOUND))
        elif not group.is_empty:
            self._groups.reply(reply_id, DeleteAnswer(ErrorCode.NON_EMPTY_GROUP))
        else:
            self._groups.note(f"group {shown(group.group_id)} is deleted on request")
            group.state = GroupState.DEAD
            self._delete_next(group, reply_id, ErrorCode.NONE)

    def remove_group(self, group: Group) -> None:
        """Remove a group that has neither members nor offsets."""
        group.state = GroupState.DEAD
        self._delete_next(group, None, ErrorCode.NONE)

    def _delete_next(self, group: Group, reply_id: int | None, code: ErrorCode) -> None:
        """Append some more tombstones, the group's own last; offsets that are being committed are removed, too."""
        if code is not ErrorCode.NONE:
            group.state = GroupState.EMPTY
            self._groups.reply(reply_id, DeleteAnswer(group_code(code)))
            return
        durable = self._groups.durable.groups.get(group.group_id)
        places = list(group.pending_offsets)[:_TOMBSTONES_PER_APPEND]
        for topic, partitions in durable.offsets.items() if durable is not None else ():
            left = _TOMBSTONES_PER_APPEND - len(places)
            if left <= 0:
                break
            places += [(topic, partition) for partition in list(partitions)[:left]]
        records: list[Record] = [
            (OffsetKey(group.group_id, topic, partition), None) for topic, partition in places
        ]
        following = partial(self._delete_next, group, reply_id)
        if not records:
            if durable is None and not group.appends:
                self._deleted(group, reply_id, ErrorCode.NONE)
                return
            records = [(GroupKey(group.group_id), None)]
            if durable is not None and durable.consumer is not None:
                records = [(key, None) for key in durable.consumer.keys(group.group_id)]
            following = partial(self._deleted, group, reply_id)
        self._groups.append(group, records, following)

    def _deleted(self, group: Group, reply_id: int | None, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            self._delete_next(group, reply_id, code)
            return
        self._groups.live.pop(group.group_id, None)
        for member_id in list(group.pending_members):
            self._membership.take_back(group, member_id)
        self._groups.reply(reply_id, DeleteAnswer(ErrorCode.NONE))


def is_in_use(group: Group, topic: str) -> bool:
    """Whether a member subscribes to the topic, as far as that is known."""
    if group.consumer is not None:
        return topic in group.consumer.subscribed()
    if group.state is GroupState.EMPTY:
        return False
    subscribed = group.subscribed()
    return subscribed is None or topic in subscribed
