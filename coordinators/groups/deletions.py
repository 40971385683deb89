"""OffsetDelete and DeleteGroups: offsets and groups that are removed on request, by tombstones.

An answer waits for its tombstones.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from echoless.coordinators.append_errors import coordinator_code
from echoless.coordinators.effects import LogLine, Reply
from echoless.coordinators.events import Now
from echoless.coordinators.groups.answers import DeleteAnswer, OffsetDeleteAnswer
from echoless.coordinators.groups.classic import membership
from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.consumer import parking
from echoless.coordinators.groups.effects import Effects, replied
from echoless.coordinators.groups.group import CONSUMER, Group, GroupState
from echoless.coordinators.groups.log_names import shown
from echoless.coordinators.groups.records import GroupRecord
from echoless.coordinators.groups.requests import DeleteGroup, OffsetDelete
from echoless.coordinators.groups.store import GroupStore
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.group_keys import GroupKey, OffsetKey

_TOMBSTONES_PER_APPEND: Final = 1_000

# --- offsets


def delete_offsets(
    store: GroupStore,
    config: GroupCoordinatorConfig,
    reply_id: int,
    request: OffsetDelete,
    now: Now,
) -> Effects:
    """Remove the offsets of topics that no member subscribes to."""
    group = store.find(request.group_id)
    code = _flaw(group, request, config)
    if group is None or code is not ErrorCode.NONE:
        return [Reply(reply_id, OffsetDeleteAnswer(code))]
    codes = [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_in_use(group, topic) else ErrorCode.NONE
        for topic, _ in request.partitions
    ]
    records: list[GroupRecord] = [
        (OffsetKey(group.group_id, topic, partition), None)
        for (topic, partition), code in zip(request.partitions, codes, strict=True)
        if code is ErrorCode.NONE and _has_offset(store, group, topic, partition)
    ]
    if not records:
        return _offsets_deleted(reply_id, codes, ErrorCode.NONE, now)
    return [store.appends.begin(group, records, partial(_offsets_deleted, reply_id, codes))]


def _flaw(group: Group | None, request: OffsetDelete, config: GroupCoordinatorConfig) -> ErrorCode:
    if group is None or group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if len(request.partitions) > config.commit_partitions_max:
        return ErrorCode.INVALID_REQUEST
    if group.consumer is None and not group.is_empty and group.protocol_type != CONSUMER:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def _has_offset(store: GroupStore, group: Group, topic: str, partition: int) -> bool:
    durable = store.durable.groups.get(group.group_id)
    is_stored = durable is not None and partition in durable.offsets.get(topic, {})
    return (
        is_stored
        or (topic, partition) in group.pending_offsets
        or (topic, partition) in store.durable.pending_offsets(group.group_id)
    )


def _offsets_deleted(reply_id: int, codes: list[ErrorCode], code: ErrorCode, _now: Now) -> Effects:
    answered = coordinator_code(code)
    if answered is not ErrorCode.NONE:
        codes = [answered if one is ErrorCode.NONE else one for one in codes]
    return [Reply(reply_id, OffsetDeleteAnswer(ErrorCode.NONE, tuple(codes)))]


# --- groups


def delete_group(store: GroupStore, reply_id: int, request: DeleteGroup, now: Now) -> Effects:
    """Remove a group that has no members, with all its offsets."""
    group = store.find(request.group_id)
    if group is None or group.state is GroupState.DEAD:
        return [Reply(reply_id, DeleteAnswer(ErrorCode.GROUP_ID_NOT_FOUND))]
    if not group.is_empty:
        return [Reply(reply_id, DeleteAnswer(ErrorCode.NON_EMPTY_GROUP))]
    group.state = GroupState.DEAD
    line = LogLine(f"group {shown(group.group_id)} is deleted on request")
    return [line, *_delete_next(store, group, reply_id, ErrorCode.NONE, now)]


def remove_group(store: GroupStore, group: Group, now: Now) -> Effects:
    """Remove a group that has neither members nor offsets."""
    group.state = GroupState.DEAD
    return _delete_next(store, group, None, ErrorCode.NONE, now)


def _delete_next(
    store: GroupStore, group: Group, reply_id: int | None, code: ErrorCode, now: Now
) -> Effects:
    """Append some more tombstones, the group's own last; offsets that are being committed are removed, too."""
    if code is not ErrorCode.NONE:
        group.state = GroupState.EMPTY
        return replied(reply_id, DeleteAnswer(coordinator_code(code)))
    places = _next_places(store, group)
    if places:
        records: list[GroupRecord] = [
            (OffsetKey(group.group_id, topic, partition), None) for topic, partition in places
        ]
        following = partial(_delete_next, store, group, reply_id)
        return [store.appends.begin(group, records, following)]
    durable = store.durable.groups.get(group.group_id)
    if durable is None and not group.appends:
        return _deleted(store, group, reply_id, ErrorCode.NONE, now)
    records = [(GroupKey(group.group_id), None)]
    if durable is not None and durable.consumer is not None:
        records = [(key, None) for key in durable.consumer.keys(group.group_id)]
    return [store.appends.begin(group, records, partial(_deleted, store, group, reply_id))]


def _next_places(store: GroupStore, group: Group) -> list[tuple[str, int]]:
    """Some of the group's offsets, those that are being committed first."""
    durable = store.durable.groups.get(group.group_id)
    pending = dict.fromkeys(
        [*group.pending_offsets, *store.durable.pending_offsets(group.group_id)]
    )
    places = list(pending)[:_TOMBSTONES_PER_APPEND]
    for topic, partitions in durable.offsets.items() if durable is not None else ():
        left = _TOMBSTONES_PER_APPEND - len(places)
        if left <= 0:
            break
        places += [(topic, partition) for partition in list(partitions)[:left]]
    return places


def _deleted(
    store: GroupStore, group: Group, reply_id: int | None, code: ErrorCode, now: Now
) -> Effects:
    if code is not ErrorCode.NONE:
        return _delete_next(store, group, reply_id, code, now)
    effects: Effects = []
    if (
        group.consumer is not None
    ):  # the topics of an expression come too late for those who wait for them
        effects += parking.refuse_all(store, group.consumer)
    for member_id in list(group.pending_members):
        effects += membership.take_back(store, group, member_id)
    store.drop_live(group)
    return effects + replied(reply_id, DeleteAnswer(ErrorCode.NONE))


def is_in_use(group: Group, topic: str) -> bool:
    """Whether a member subscribes to the topic, as far as that is known."""
    if group.consumer is not None:
        return topic in group.consumer.subscribed()
    if group.state is GroupState.EMPTY:
        return False
    subscribed = group.subscribed()
    return subscribed is None or topic in subscribed
