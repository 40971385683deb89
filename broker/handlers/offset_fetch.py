"""OffsetFetch (9), versions 1-10: the offsets that groups have committed.

A group or a partition that has none is answered with offset -1, "none". v2: all topics if none are named. v5
(KIP-320): leader epochs. v6: flexible. v7 (KIP-447): only stable offsets. v8 (KIP-709): several groups at once. v9
(KIP-848): the member that asks. v10: topic ids in place of names.

A group that is named again is answered once, with what all its mentions ask for. An answer has room for so many bytes:
once they are used up, the groups that are left get an error with which clients ask for them again.

An error of a group that asking again cures comes with the partitions, which Kafka leaves out. Without them librdkafka never
reads them (#5586), and aiokafka, which looks at nothing else, takes them for partitions that have no offset. Other clients
look at the group's error first.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.handlers import permits
from echoless.broker.handlers.answer_room import NO_ROOM, AnswerRoom
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.group_answers import ask_all
from echoless.broker.handlers.offset_commit import find_topic
from echoless.broker.handlers.permits import may, rights_of
from echoless.broker.handlers.refusals import Refusal, refused_partitions
from echoless.broker.handlers.request_topics import topic_key
from echoless.broker.handlers.served import Names, Served
from echoless.broker.network.request import Answer, Request
from echoless.broker.network.turns import ROWS_PER_TURN, ManyRows, work_in_turns
from echoless.coordinators.groups.answers import FetchedOffset, OffsetFetchAnswer
from echoless.coordinators.groups.requests import OffsetFetch
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode
from echoless.protocol.typed_requests import typed

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services

API = declared(__name__)


GROUPS_FROM: Final = 8
"""The first version that may ask for several groups."""
TOPIC_IDS_FROM: Final = 10
_TOP_ERROR_FROM: Final = 2
"""The first version with an error of the group."""
_ASKED_AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""Errors of a group that come with its partitions."""
_ASKED_AT_ONCE: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""Errors after which librdkafka asks again without a pause, a thousand times a second."""
_PAUSE_S: Final = 0.1
"""Time before one of these is answered."""


class OffsetFetchRequest(NamedTuple):
    group_id: str = ""
    """The only group, before v8."""
    topics: tuple[Any, ...] | None = ()
    """Its topics; None: all."""
    groups: tuple[Any, ...] = ()
    require_stable: bool = False


class RequestGroup(NamedTuple):
    """A group of v8 or later."""

    group_id: str
    topics: tuple[Any, ...] | None
    member_id: str | None = None
    member_epoch: int = -1


class _Group:
    """One group of the request: what is answered at once, and what its coordinator has to say."""

    def __init__(
        self,
        group_id: str,
        topics: tuple[Any, ...] | None,
        member_id: str | None = None,
        epoch: int = -1,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = epoch
        self.topics = topics
        self.code = ErrorCode.NONE
        self.order: dict[Any, tuple[str | None, dict[int, ErrorCode]]] = {}
        """Per topic as the request names it: its name, and each partition with its error."""
        self.rows: list[dict[str, Any]] = []
        self.row_count = 0

    def wanted(self) -> tuple[tuple[str, int], ...] | None:
        """The partitions to ask the coordinator for; None: all."""
        if self.topics is None:
            return None
        return tuple(
            (name, index)
            for name, indexes in self.order.values()
            for index, code in indexes.items()
            if name is not None and not code
        )


def _merge(groups: tuple[Any, ...], by_id: dict[str, _Group]) -> Iterator[None]:
    """Adds the groups to `by_id`, each once, one mention at a time."""
    mentions: dict[str, list[Any]] = {}
    for entity in groups:
        one = typed(RequestGroup, entity)
        known = by_id.get(one.group_id)
        if known is None:
            by_id[one.group_id] = _Group(one.group_id, one.topics, one.member_id, one.member_epoch)
        elif one.topics is None:
            known.topics = None
        else:
            mentions.setdefault(one.group_id, []).extend(one.topics)
        yield
    for group_id, topics in mentions.items():
        group = by_id[group_id]
        group.topics = None if group.topics is None else (*group.topics, *topics)


async def handle(request: Request, services: Services) -> Answer:
    """The committed offsets, group by group."""
    if request.peer.order.commits.places:
        await request.peer.order.commits.wait()
    body, version = typed(OffsetFetchRequest, request.body), request.version
    rights = rights_of(request, services)
    if version >= GROUPS_FROM:
        by_id: dict[str, _Group] = {}
        await work_in_turns(_merge(body.groups, by_id))
        groups = list(by_id.values())
    else:
        groups = [_Group(body.group_id, body.topics)]
    has_ids = version >= TOPIC_IDS_FROM
    await work_in_turns(_sort(groups, rights, services, has_ids=has_ids))
    asked = [one for one in groups if not one.code]
    requests = (
        OffsetFetch(one.group_id, one.wanted(), body.require_stable, one.member_id, one.epoch)
        for one in asked
    )
    answers = await ask_all(services, requests)
    answered = {id(group): answer for group, answer in zip(asked, answers, strict=True)}
    await work_in_turns(_fill(groups, answered, rights, services, version))
    if any(one.code in _ASKED_AT_ONCE for one in asked):
        await asyncio.sleep(_PAUSE_S)
    return _fields(version, groups)


def _sort(
    groups: list[_Group], rights: Rights | None, services: Services, *, has_ids: bool
) -> Iterator[None]:
    """Looks at the rights, and the ids, of everything that is asked for, a partition at a time."""
    for group in groups:
        yield
        if not may(rights, AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id):
            group.code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        for topic in group.topics or ():
            key = topic_key(topic)
            name, code = key, group.code
            if has_ids:
                known, missing = find_topic(key, services, has_ids=True)
                name, code = (None, missing) if known is None else (known.name, code)
            if not code and not may(rights, AclOperation.DESCRIBE, ResourceType.TOPIC, name or ""):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            _, indexes = group.order.setdefault(key, (name, {}))
            for index in topic.partition_indexes:
                indexes[index] = code
                yield
            if not indexes:
                yield


def _fill(
    groups: list[_Group],
    answered: dict[int, Any],
    rights: Rights | None,
    services: Services,
    version: int,
) -> Iterator[None]:
    """Makes the rows of each group, a partition at a time, as long as there is room."""
    left = AnswerRoom()
    for group in groups:
        yield
        answer: OffsetFetchAnswer | None = answered.pop(id(group), None)
        if answer is not None:
            group.code = answer.error_code if left else NO_ROOM
        found: dict[tuple[str, int], FetchedOffset] = {}
        if answer is not None and not group.code:
            for one in answer.partitions:
                found[one.topic, one.partition] = one
                left.take(len(one.metadata))
                yield
        if group.topics is None:
            has_ids = version >= TOPIC_IDS_FROM
            yield from _all_rows(group, found.values(), rights, services, has_ids=has_ids)
        else:
            yield from _rows(group, found, version)


def _rows(
    group: _Group, found: dict[tuple[str, int], FetchedOffset], version: int
) -> Iterator[None]:
    has_ids, group_code = version >= TOPIC_IDS_FROM, _row_code(group.code, version)
    for key, (name, indexes) in group.order.items():
        partitions: list[dict[str, Any]] = []
        group.rows.append({**_topic_field(key, has_ids=has_ids), "partitions": partitions})
        for index, code in indexes.items():
            one = None if name is None else found.get((name, index))
            group.row_count += 1
            partitions.append(_row(one or FetchedOffset("", index, error_code=group_code or code)))
            yield
        if not indexes:
            yield


def _all_rows(
    group: _Group,
    found: Iterable[FetchedOffset],
    rights: Rights | None,
    services: Services,
    *,
    has_ids: bool,
) -> Iterator[None]:
    """The rows of "all topics": those that the client may not describe are left out."""
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for one in found:
        yield
        partitions = by_topic.get(one.topic)
        if partitions is None:
            if not may(rights, AclOperation.DESCRIBE, ResourceType.TOPIC, one.topic):
                continue
            topic = services.registry.topics.get(one.topic)
            if has_ids and topic is None:
                continue  # it was deleted, and has no id any more
            partitions = by_topic[one.topic] = []
            key = topic.topic_id if has_ids and topic is not None else one.topic
            group.rows.append({**_topic_field(key, has_ids=has_ids), "partitions": partitions})
        partitions.append(_row(one))
        group.row_count += 1


def _row_code(group_code: ErrorCode, version: int) -> ErrorCode:
    """The error of each partition of a group that has one: the one with which clients of this version ask for it again."""
    if version < _TOP_ERROR_FROM or group_code not in _ASKED_AGAIN:
        return group_code
    if version >= GROUPS_FROM:  # librdkafka
        return ErrorCode.STALE_MEMBER_EPOCH
    is_known = group_code is not ErrorCode.COORDINATOR_NOT_AVAILABLE  # to aiokafka
    return group_code if is_known else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def _topic_field(key: str | uuid.UUID, *, has_ids: bool) -> dict[str, Any]:
    """The field of a response's row that names its topic; with ids, an empty name is the id of zeros."""
    return {"topic_id": key or None} if has_ids else {"name": key}


def _row(one: FetchedOffset) -> dict[str, Any]:
    return {
        "partition_index": one.partition,
        "committed_offset": one.offset,
        "committed_leader_epoch": one.leader_epoch,
        "metadata": one.metadata,
        "error_code": one.error_code,
    }


def _fields(version: int, groups: list[_Group]) -> dict[str, Any]:
    """An error of the group has no rows, except in version 1, where they carry it, and where the client is to ask again."""
    rows = [
        {
            "group_id": one.group_id,
            "error_code": one.code,
            "topics": one.rows if _has_rows(one.code, version) else (),
        }
        for one in groups
    ]
    fields = {"groups": rows} if version >= GROUPS_FROM else rows[0]
    count = len(groups) + sum([one.row_count + len(one.rows) for one in groups])
    return ManyRows(fields) if count > ROWS_PER_TURN else fields


def _has_rows(group_code: ErrorCode, version: int) -> bool:
    return not group_code or version < _TOP_ERROR_FROM or group_code in _ASKED_AGAIN


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error of each group; in version 1, which has no such error, of each partition."""
    code, version = refusal.error.code, refusal.request.version
    row_code = _row_code(code, version)
    groups = [
        {
            "group_id": group.group_id,
            "error_code": code,
            "topics": _refused(group.topics, row_code, version) if code in _ASKED_AGAIN else (),
        }
        for group in typed(OffsetFetchRequest, refusal.request.body).groups
    ]
    topics = refused_partitions(refusal, error_code=row_code, committed_offset=-1, metadata="")
    return {"error_code": code, "topics": topics, "groups": groups}


def _refused(topics: tuple[Any, ...] | None, code: ErrorCode, version: int) -> list[dict[str, Any]]:
    return [
        {
            **_topic_field(topic_key(topic), has_ids=version >= TOPIC_IDS_FROM),
            "partitions": [
                _row(FetchedOffset("", index, error_code=code)) for index in topic.partition_indexes
            ],
        }
        for topic in topics or ()
    ]


SERVED = Served(API, handle, refuse, Names.PARTITIONS, permit=permits.asked_by_handler)
