"""DescribeGroups and ListGroups."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain

from echoless.coordinators.groups.answers import DescribeAnswer, DescribedMember, ListedGroup
from echoless.coordinators.groups.classic.member import Member
from echoless.coordinators.groups.consumer.group import ConsumerGroup
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.store import GroupStore
from echoless.protocol.errors import ErrorCode

_CLASSIC = "classic"
_CONSUMER = "consumer"


def described(group: Group | None) -> DescribeAnswer:
    """The group; protocol, metadata and assignments only while it is stable."""
    if group is None or group.state is GroupState.DEAD or group.consumer is not None:
        return DescribeAnswer(ErrorCode.GROUP_ID_NOT_FOUND, GroupState.DEAD.value)
    is_stable = group.state is GroupState.STABLE
    protocol_name = group.protocol_name if is_stable else None
    return DescribeAnswer(
        ErrorCode.NONE,
        group.state.value,
        group.protocol_type or "",
        protocol_name or "",
        tuple([_member(member, protocol_name) for member in group.members.values()]),
    )


def _member(member: Member, protocol_name: str | None) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        b"" if protocol_name is None else member.metadata(protocol_name),
        b"" if protocol_name is None else member.assignment,
    )


def listed(
    store: GroupStore, states: Collection[str], types: Collection[str]
) -> Iterator[ListedGroup | None]:
    """All groups that match, one after the other; None for one that does not."""
    wanted_states = {state.casefold() for state in states}
    wanted_types = {one.casefold() for one in types}
    for group_id in list(dict.fromkeys(chain(store.durable.groups, store.live))):
        row = _row(store, group_id)
        is_wanted = row is not None and (
            (not wanted_types or row.group_type in wanted_types)
            and (not wanted_states or row.state.casefold() in wanted_states)
        )
        yield row if is_wanted else None


def state_name(store: GroupStore, group_id: str) -> str | None:
    """The state of a group, as ListGroups names it; None if there is no such group."""
    row = _row(store, group_id)
    return None if row is None else row.state


def _row(store: GroupStore, group_id: str) -> ListedGroup | None:
    group = store.live.get(group_id)
    if group is not None and group.consumer is not None:
        return _consumer_row(group_id, group.consumer)
    if group is not None:
        return ListedGroup(group_id, group.protocol_type or "", group.state.value, _CLASSIC)
    durable = store.durable.groups.get(group_id)
    if durable is None:
        return None
    if durable.consumer is not None:
        return _consumer_row(group_id, ConsumerGroup(group_id, durable.consumer))
    protocol_type = durable.value.protocol_type if durable.value is not None else ""
    return ListedGroup(group_id, protocol_type, GroupState.EMPTY.value, _CLASSIC)


def _consumer_row(group_id: str, group: ConsumerGroup) -> ListedGroup:
    state = group.state
    epochs = (state.number, state.target_epoch)
    return ListedGroup(group_id, _CONSUMER, group.condition, _CONSUMER, *epochs)
