"""One consumer group as JSON: its members, what each holds, and how far behind the group is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.admin.refusal import RefusalError
from echoless.broker.admin.view import BrokerView
from echoless.broker.network.turns import work_in_turns
from echoless.coordinators.groups.answers import (
    NO_OFFSET,
    DescribeAnswer,
    FetchedOffset,
    OffsetFetchAnswer,
)
from echoless.coordinators.groups.consumer.requests import ConsumerDescribe, ConsumerDescribeAnswer
from echoless.coordinators.groups.requests import DescribeGroup, OffsetFetch
from echoless.protocol.consumer_assignment import Partition, assigned_partitions
from echoless.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from echoless.coordinators.groups.requests import GroupRequest


PARTITIONS_MAX: Final = 10_000
"""Partitions that are shown of a group: of what its members have, and of its offsets. It may have a million of them."""


async def group_document(
    broker: BrokerView, name: str, is_shown: Callable[[str], bool]
) -> dict[str, Any]:
    """The group's state, members and offsets, without the topics that the caller may not see.

    `end` and `lag` are null for a partition that this broker does not hold. `is_complete` is false if there are more
    partitions than are shown. Raises `RefusalError`.
    """
    described = await _described(broker, name)
    fetched: OffsetFetchAnswer = await _ask(broker, OffsetFetch(name, None))
    _check(name, fetched.error_code)
    found = _Found(broker, is_shown)
    await work_in_turns(found.take_members(described.members))
    await work_in_turns(found.take_offsets(fetched.partitions))
    await work_in_turns(found.make_rows())
    return {
        "group": name,
        "state": described.state,
        "protocol_type": described.protocol_type,
        "protocol": described.protocol,
        "members": found.members,
        "partitions": found.rows,
        "is_complete": found.is_complete,
    }


class _Found:
    """The rows of a group, as far as they are shown; each method is to be taken in turns."""

    def __init__(self, broker: BrokerView, is_shown: Callable[[str], bool]) -> None:
        self._broker = broker
        self._is_shown = is_shown
        self._holders: dict[Partition, str] = {}
        self._committed: dict[Partition, int] = {}
        self.members: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []
        self.is_complete = True

    def take_members(self, members: Iterable[tuple[_Member, _Assigned]]) -> Iterator[None]:
        """Takes what the members have."""
        left = PARTITIONS_MAX
        for member, assigned in members:
            assert left >= 0
            places = assigned(left + 1)
            if len(places) > left:
                self.is_complete = False
                del places[left:]
            left -= len(places)
            yield
            held: list[Partition] = []
            for place in places:
                if self._is_shown(place[0]):
                    held.append(place)
                    self._holders[place] = member.member_id
                yield
            self.members.append(_member(member, held))

    def take_offsets(self, offsets: Iterable[FetchedOffset]) -> Iterator[None]:
        """Takes what is committed."""
        for one in offsets:
            if len(self._committed) >= PARTITIONS_MAX:
                self.is_complete = False
                return
            if one.offset != NO_OFFSET and self._is_shown(one.topic):
                self._committed[one.topic, one.partition] = one.offset
            yield

    def make_rows(self) -> Iterator[None]:
        """Makes a row of each partition, in order; sorted by topic, as numbers are sorted fast."""
        by_topic: dict[str, set[int]] = {}
        for topic, index in (*self._committed, *self._holders):
            by_topic.setdefault(topic, set()).add(index)
            yield
        for topic in sorted(by_topic):
            for index in sorted(by_topic[topic]):
                place = (topic, index)
                self.rows.append(_row(self._broker, place, self._committed, self._holders))
                yield


_Assigned = Callable[[int], "list[Partition]"]
"""Returns so many partitions at most."""


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
    members: Sequence[tuple[_Member, _Assigned]]
    """Each with the partitions that it has, of which so many are read as are asked for."""


async def _described(broker: BrokerView, name: str) -> _Described:
    """Raises `RefusalError`."""
    answer: DescribeAnswer = await _ask(broker, DescribeGroup(name))
    if answer.error_code is ErrorCode.GROUP_ID_NOT_FOUND:
        return await _described_consumers(broker, name)
    _check(name, answer.error_code)
    members = [
        (
            _Member(one.member_id, one.group_instance_id, one.client_id, one.client_host),
            partial(assigned_partitions, one.assignment),
        )
        for one in answer.members
    ]
    return _Described(answer.state, answer.protocol_type, answer.protocol_name, members)


async def _described_consumers(broker: BrokerView, name: str) -> _Described:
    """The same of a group of the consumer protocol, whose protocol is its assignor. Raises `RefusalError`."""
    answer: ConsumerDescribeAnswer = await _ask(broker, ConsumerDescribe(name))
    _check(name, answer.error_code)
    ids: set[bytes] = set()
    await work_in_turns(
        map(ids.update, ((topic_id for topic_id, _ in one.assigned) for one in answer.members))
    )
    names = broker.groups.topic_names(ids)
    members = [
        (
            _Member(
                one.member_id, one.value.instance_id, one.value.client_id, one.value.client_host
            ),
            partial(_named, one.assigned, names),
        )
        for one in answer.members
    ]
    return _Described(answer.state, "consumer", answer.assignor, members)


def _named(
    assigned: Collection[tuple[bytes, int]], names: Mapping[bytes, str], most: int
) -> list[Partition]:
    """The partitions by the names of their topics, without those of deleted ones."""
    known = ((names[topic], index) for topic, index in assigned if topic in names)
    return sorted(islice(known, most))


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
        raise RefusalError(HTTPStatus.NOT_FOUND, f"this broker coordinates no group {name!r}")
    if code is not ErrorCode.NONE:
        raise RefusalError(HTTPStatus.SERVICE_UNAVAILABLE, f"group {name!r}: {code.name}")
