"""One consumer group as JSON: its members, what each holds, and how far behind the group is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from echoless.broker.admin.refusal import RefusalError
from echoless.broker.admin.view import BrokerView
from echoless.broker.network.turns import work_in_turns
from echoless.coordinators.groups.answers import (
    NO_OFFSET,
    DescribeAnswer,
    OffsetFetchAnswer,
)
from echoless.coordinators.groups.consumer.requests import ConsumerDescribe, ConsumerDescribeAnswer
from echoless.coordinators.groups.requests import DescribeGroup, OffsetFetch
from echoless.protocol.consumer_assignment import Partition, assigned_partitions
from echoless.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from echoless.coordinators.groups.requests import GroupRequest


async def group_document(
    broker: BrokerView, name: str, is_shown: Callable[[str], bool]
) -> dict[str, Any]:
    """The group's state, members and offsets, without the topics that the caller may not see.

    `end` and `lag` are null for a partition that this broker does not hold. Raises `RefusalError`.
    """
    described = await _described(broker, name)
    fetched: OffsetFetchAnswer = await _ask(broker, OffsetFetch(name, None))
    _check(name, fetched.error_code)
    members, holders = [], dict[Partition, str]()
    for one, places in described.members:
        held = [place for place in places if is_shown(place[0])]
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
        "protocol": described.protocol,
        "members": members,
        "partitions": rows,
    }


class _Member(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str


class _Described(NamedTuple):
    """A group of either protocol."""

    state: str
    protocol_type: str
    protocol: str
    members: list[tuple[_Member, list[Partition]]]
    """Each with the partitions that it has."""


async def _described(broker: BrokerView, name: str) -> _Described:
    """Raises `RefusalError`."""
    answer: DescribeAnswer = await _ask(broker, DescribeGroup(name))
    if answer.error_code is ErrorCode.GROUP_ID_NOT_FOUND:
        return await _described_consumers(broker, name)
    _check(name, answer.error_code)
    members = [
        (
            _Member(one.member_id, one.group_instance_id, one.client_id, one.client_host),
            list(assigned_partitions(one.assignment)),
        )
        for one in answer.members
    ]
    return _Described(answer.state, answer.protocol_type, answer.protocol_name, members)


async def _described_consumers(broker: BrokerView, name: str) -> _Described:
    """The same of a group of the consumer protocol, whose protocol is its assignor. Raises `RefusalError`."""
    answer: ConsumerDescribeAnswer = await _ask(broker, ConsumerDescribe(name))
    _check(name, answer.error_code)
    ids = {topic_id for one in answer.members for topic_id, _ in one.assigned}
    names = broker.groups.topic_names(ids)
    members = [
        (
            _Member(
                one.member_id, one.value.instance_id, one.value.client_id, one.value.client_host
            ),
            sorted((names[topic], index) for topic, index in one.assigned if topic in names),
        )
        for one in answer.members
    ]
    return _Described(answer.state, "consumer", answer.assignor, members)


def _member(member: _Member, held: list[Partition]) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
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
    return await answered if isinstance(answered, Awaitable) else answered


def _check(name: str, code: ErrorCode) -> None:
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        raise RefusalError(HTTPStatus.NOT_FOUND, f"there is no group {name!r}")
    if code is ErrorCode.NOT_COORDINATOR:
        raise RefusalError(HTTPStatus.NOT_FOUND, f"another broker coordinates group {name!r}")
    if code is not ErrorCode.NONE:
        raise RefusalError(HTTPStatus.SERVICE_UNAVAILABLE, f"group {name!r}: {code.name}")
