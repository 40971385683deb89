"""One consumer group as JSON: its members, what each holds, and how far behind the group is."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from broker.admin.refusal import RefusalError
from broker.admin.view import BrokerView
from broker.network.turns import work_in_turns
from coordinators.groups.answers import (
    NO_OFFSET,
    DescribeAnswer,
    DescribedMember,
    OffsetFetchAnswer,
)
from coordinators.groups.requests import DescribeGroup, OffsetFetch
from protocol.consumer_assignment import Partition, assigned_partitions
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from coordinators.groups.requests import GroupRequest


async def group_document(
    broker: BrokerView, name: str, is_shown: Callable[[str], bool]
) -> dict[str, Any]:
    """The group's state, members and offsets, without the topics that the caller may not see.

    `end` and `lag` are null for a partition that this broker does not hold. Raises `RefusalError`.
    """
    described: DescribeAnswer = await _ask(broker, DescribeGroup(name))
    fetched: OffsetFetchAnswer = await _ask(broker, OffsetFetch(name, None))
    for answer in (described, fetched):
        _check(name, answer.error_code)
    members, holders = [], dict[Partition, str]()
    for one in described.members:
        held = [place for place in assigned_partitions(one.assignment) if is_shown(place[0])]
        holders.update(dict.fromkeys(held, one.member_id))
        members.append(_member(one, held))
    committed = {
        (one.topic, one.partition): one.offset
        for one in fetched.partitions
        if one.offset != NO_OFFSET and is_shown(one.topic)
    }
    rows: list[dict[str, Any]] = []
    places = sorted({*committed, *holders})
    await work_in_turns(
        map(rows.append, (_row(broker, place, committed, holders) for place in places))
    )
    return {
        "group": name,
        "state": described.state,
        "protocol_type": described.protocol_type,
        "protocol": described.protocol_name,
        "members": members,
        "partitions": rows,
    }


def _member(member: DescribedMember, held: list[Partition]) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.client_host,
        "partitions": [{"topic": topic, "partition": index} for topic, index in held],
    }


def _row(
    broker: BrokerView,
    place: Partition,
    committed: Mapping[Partition, int],
    holders: Mapping[Partition, str],
) -> dict[str, Any]:
    partition, offset = broker.partitions.get(place), committed.get(place)
    end = None if partition is None else partition.high_watermark
    return {
        "topic": place[0],
        "partition": place[1],
        "committed": offset,
        "end": end,
        "lag": None if end is None or offset is None else max(0, end - offset),
        "member_id": holders.get(place),
    }


async def _ask(broker: BrokerView, request: GroupRequest) -> Any:
    answered = broker.groups.ask(request)
    return await answered if isinstance(answered, Coroutine) else answered


def _check(name: str, code: ErrorCode) -> None:
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        raise RefusalError(HTTPStatus.NOT_FOUND, f"there is no group {name!r}")
    if code is ErrorCode.NOT_COORDINATOR:
        raise RefusalError(HTTPStatus.NOT_FOUND, f"another broker coordinates group {name!r}")
    if code is not ErrorCode.NONE:
        raise RefusalError(HTTPStatus.SERVICE_UNAVAILABLE, f"group {name!r}: {code.name}")
