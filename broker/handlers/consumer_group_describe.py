"""ConsumerGroupDescribe (69), versions 0-1: groups of the consumer protocol, what members have and are to have.

v1: the type of a member. A group of the classic protocol is not found: DescribeGroups describes it.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.handlers import permits
from echoless.broker.handlers.answer_room import NO_ROOM, AnswerRoom
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.authorized_operations import NOT_ASKED, group_operations
from echoless.broker.handlers.group_answers import described, with_rows
from echoless.broker.handlers.permits import denied, may
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Answer, Request
from echoless.broker.network.turns import work_in_turns
from echoless.coordinators.groups.consumer.requests import (
    ConsumerDescribe,
    ConsumerDescribeAnswer,
    DescribedConsumer,
)
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode
from echoless.protocol.typed_requests import typed

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services

API = declared(__name__)

_CONSUMER_MEMBER: Final = 1


_NAME_BYTES: Final = 64
_PARTITION_BYTES: Final = 64
"""The memory of a subscribed name besides its characters, and of an assigned partition, in an answer."""


class ConsumerGroupDescribeRequest(NamedTuple):
    group_ids: tuple[str, ...]
    include_authorized_operations: bool = False


async def handle(request: Request, services: Services) -> Answer:
    """One row per group."""
    body = typed(ConsumerGroupDescribeRequest, request.body)
    rights, answers = await described(request, body.group_ids, services, ConsumerDescribe)
    found: list[dict[str, Any]] = []
    left = AnswerRoom()

    def rows() -> Iterator[None]:
        for name, answer in answers.items():
            if answer is None:
                row = _error(denied(AclOperation.DESCRIBE, ResourceType.GROUP).code)
            elif not left:
                row = _error(NO_ROOM)
            else:
                assert isinstance(answer, ConsumerDescribeAnswer)
                row = yield from _row(answer, rights, services, left)
                asked = body.include_authorized_operations
                row["authorized_operations"] = group_operations(rights, name, asked=asked)
            found.append({"group_id": name, **row})
            yield

    await work_in_turns(rows())
    return with_rows({"groups": found}, found, left.used)


def _row(
    answer: ConsumerDescribeAnswer, rights: Rights | None, services: Services, left: AnswerRoom
) -> Generator[None, None, dict[str, Any]]:
    """The group, a member at a time."""
    names, members = _Names(services), list[dict[str, Any]]()
    for one in answer.members:
        subscribed = sum([len(name) + _NAME_BYTES for name in one.value.topic_names])
        left.take(subscribed + _PARTITION_BYTES * (len(one.assigned) + len(one.target)))
        members.append(_member(one, names))
        yield
    for name in names.used:
        if not may(rights, AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            message = (
                "The described group uses topics that the client is not authorized to describe."
            )
            return _error(denied(AclOperation.DESCRIBE, ResourceType.TOPIC).code, message)
        yield
    return {
        "error_code": answer.error_code,
        "error_message": answer.message,
        "group_state": answer.state,
        "group_epoch": answer.epoch,
        "assignment_epoch": answer.target_epoch,
        "assignor_name": answer.assignor,
        "members": members,
    }


class _Names:
    """The names of topics by their ids; those of deleted ones are empty."""

    def __init__(self, services: Services) -> None:
        self._topics = services.registry.topics_by_id
        self.used: set[str] = set()

    def find(self, topic_id: uuid.UUID) -> str:
        topic = self._topics.get(topic_id)
        if topic is None:
            return ""
        self.used.add(topic.name)
        return topic.name


def _member(one: DescribedConsumer, names: _Names) -> dict[str, Any]:
    names.used.update(one.value.topic_names)
    return {
        "member_id": one.member_id,
        "instance_id": one.value.instance_id,
        "rack_id": one.value.rack_id,
        "member_epoch": one.member_epoch,
        "client_id": one.value.client_id,
        "client_host": one.value.client_host,
        "subscribed_topic_names": one.value.topic_names,
        "subscribed_topic_regex": one.value.topic_regex or "",
        "assignment": _assignment(one.assigned, names),
        "target_assignment": _assignment(one.target, names),
        "member_type": _CONSUMER_MEMBER,
    }


def _assignment(partitions: frozenset[tuple[bytes, int]], names: _Names) -> dict[str, Any]:
    rows: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        rows.setdefault(topic_id, []).append(index)
    found = [(uuid.UUID(bytes=topic_id), indexes) for topic_id, indexes in rows.items()]
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": names.find(topic_id), "partitions": indexes}
            for topic_id, indexes in found
        ]
    }


def _error(code: ErrorCode, message: str | None = None) -> dict[str, Any]:
    return {
        "error_code": code,
        "error_message": message,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": (),
        "authorized_operations": NOT_ASKED,
    }


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error of each group."""
    row = _error(refusal.error.code)
    names = dict.fromkeys(refusal.request.body.group_ids)
    return {"groups": [{"group_id": name, **row} for name in names]}


SERVED = Served(API, handle, refuse, permit=permits.asked_by_handler)
