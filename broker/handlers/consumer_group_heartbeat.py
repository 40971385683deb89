"""ConsumerGroupHeartbeat (68), versions 0-1: a member of a group of the consumer protocol joins, is alive, or leaves.

The answer has the partitions that it may use from now on, if these have changed. v0: the broker may make the id
of a member. v1 (KIP-1082): the client makes it; a subscription by regular expression.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.groups.topic_patterns import check_pattern
from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.commit_turn import after_commits
from echoless.broker.handlers.group_answers import translated, with_rows
from echoless.broker.handlers.permits import DENIED_TOPIC, rights_of
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.order import LanePlace
from echoless.broker.network.request import Answer, NeedsNoFrame, Outcome, Request
from echoless.broker.network.sharer import sharer_of
from echoless.broker.network.turns import work_in_turns
from echoless.coordinators.groups.consumer.requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    MayDescribe,
)
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.typed_requests import typed

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)

_MAKES_MEMBER_ID_FROM: Final = 1
_ZEROS: Final = uuid.UUID(int=0)


_JUDGED_AT_ONCE: Final = 200
"""Names whose rights are looked at in one step."""
_DENIED: Final = ConsumerHeartbeatAnswer(
    DENIED_TOPIC[AclOperation.DESCRIBE].code, DENIED_TOPIC[AclOperation.DESCRIBE].message
)


class ConsumerGroupHeartbeatRequest(NamedTuple):
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout: timedelta
    subscribed_topic_names: tuple[str, ...] | None
    server_assignor: str | None
    topic_partitions: tuple[Any, ...] | None
    subscribed_topic_regex: str | None = None


def handle(request: Request, services: Services) -> Outcome:
    """Answers once what it changes is stored."""
    body = typed(ConsumerGroupHeartbeatRequest, request.body)
    rights = rights_of(request, services)
    may_describe = None
    if rights is not None:
        may_describe = partial(rights.may, AclOperation.DESCRIBE, ResourceType.TOPIC)
        names = body.subscribed_topic_names or ()
        if len(names) > _JUDGED_AT_ONCE:
            place = request.peer.order.commits.enter()
            return NeedsNoFrame(_when_judged(place, request, services, may_describe))
        if not all(map(may_describe, names)):
            return _fields(_DENIED)
    return _admitted(request, services, may_describe)


def _admitted(request: Request, services: Services, may_describe: MayDescribe) -> Outcome:
    wanted = _wanted(request, services.groups.new_member_uuid())._replace(may_describe=may_describe)
    if wanted.topic_regex:
        return NeedsNoFrame(_with_regex(request, wanted, services))
    return translated(services.groups.ask(wanted), _fields)


async def _when_judged(
    place: LanePlace, request: Request, services: Services, may_describe: Callable[[str], bool]
) -> Answer:
    """Looks at the rights of many names in turns; what the client asks of a group meanwhile waits."""
    names = typed(ConsumerGroupHeartbeatRequest, request.body).subscribed_topic_names or ()
    denied: list[str] = []

    def judge(name: str) -> None:
        if not denied and not may_describe(name):
            denied.append(name)

    with place:
        await work_in_turns(map(judge, names))
        await place.come()
        outcome = _fields(_DENIED) if denied else _admitted(request, services, may_describe)
    return await outcome if isinstance(outcome, Awaitable) else outcome


async def _with_regex(request: Request, wanted: ConsumerHeartbeat, services: Services) -> Answer:
    assert wanted.topic_regex is not None
    try:
        await check_pattern(wanted.topic_regex, request.peer.host)
    except KafkaError as error:
        return _fields(ConsumerHeartbeatAnswer(error.code, error.message))
    outcome = translated(services.groups.ask(wanted), _fields)
    return await outcome if isinstance(outcome, NeedsNoFrame) else outcome  # type: ignore[return-value]


def _wanted(request: Request, new_uuid: str) -> ConsumerHeartbeat:
    body = typed(ConsumerGroupHeartbeatRequest, request.body)
    owned = body.topic_partitions
    return ConsumerHeartbeat(
        group_id=body.group_id,
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=body.rebalance_timeout // timedelta(milliseconds=1),
        topic_names=body.subscribed_topic_names,
        topic_regex=body.subscribed_topic_regex,
        assignor=body.server_assignor,
        owned=None if owned is None else frozenset(_partitions(owned)),
        client_id=request.client_id or "",
        client_host=f"/{request.peer.host}",
        uuid=new_uuid,
        makes_member_id=request.version >= _MAKES_MEMBER_ID_FROM,
        sharer=sharer_of(request.peer),
    )


def _partitions(topics: tuple[Any, ...]) -> list[tuple[bytes, int]]:
    return [
        ((topic.topic_id or _ZEROS).bytes, index) for topic in topics for index in topic.partitions
    ]


def _fields(answer: ConsumerHeartbeatAnswer) -> dict[str, Any]:
    rows: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(answer.assignment or ()):
        rows.setdefault(topic_id, []).append(index)
    topics = [
        {"topic_id": uuid.UUID(bytes=topic_id), "partitions": indexes}
        for topic_id, indexes in rows.items()
    ]
    fields = {
        "error_code": answer.error_code,
        "error_message": answer.message,
        "member_id": answer.member_id,
        "member_epoch": answer.member_epoch,
        "heartbeat_interval": answer.heartbeat_interval_ms,
        "assignment": None if answer.assignment is None else {"topic_partitions": topics},
    }
    return with_rows(fields, tuple(answer.assignment or ()))


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error."""
    code: ErrorCode = refusal.error.code
    return _fields(ConsumerHeartbeatAnswer(code, refusal.error.message or None))


SERVED = Served(API, after_commits(handle), refuse, permit=permits.group(AclOperation.READ))
