"""DeleteTopics (20), versions 1-6: deletes topics by name or by id, each on its own.

A topic is answered once its deletion is durable: no one can use it any more, and a creation of the same
name waits for what is left of it (`broker/partitions/topic_deletion.py`); so the timeout is ignored. The
producer state of its partitions goes with them.

v1-3: names. v4: flexible. v5 (KIP-599): error messages; 89 for
what a quota does not allow (`mutations.py`). v6 (KIP-516): a topic may be named by its
id; a topic that is named twice, in either way, is refused.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.merged_responses import Rows
from echoless.broker.handlers.mutations import Mutations
from echoless.broker.handlers.permits import (
    DENIED_TOPIC,
    Judged,
    denied_topics,
    name_of,
    on_topics,
    rights_of,
)
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.request_topics import topics_of
from echoless.broker.handlers.served import Names, Served
from echoless.broker.network.denial import Denial
from echoless.broker.network.request import Answer, Request
from echoless.broker.network.turns import awaited_in_turns, work_in_turns
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.typed_requests import typed

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services

API = declared(__name__)


class DeleteTopicsRequest(NamedTuple):
    topic_names: tuple[str, ...] = ()
    """The topics before v6."""
    topics: tuple[Any, ...] = ()
    """The topics from v6 on, by name or id."""


class _Wanted(NamedTuple):
    """A topic as the client names it; one of the two should be set."""

    name: str | None
    topic_id: uuid.UUID | None


async def handle(request: Request, services: Services) -> Answer:
    """One row per topic, in the order of the request."""
    body = typed(DeleteTopicsRequest, request.body)
    wanted: dict[_Wanted, None] = {}
    seen: set[str | _Wanted] = set()
    twice: set[str | _Wanted] = set()

    def note(one: _Wanted) -> None:
        key = _name(services, one) or one
        if key in seen:
            twice.add(key)
        seen.add(key)
        wanted[one] = None

    await work_in_turns(map(note, _all_wanted(body)))
    mutations = Mutations.of(request, services)
    rows = (_row(services, mutations, one, twice) for one in wanted)
    return await awaited_in_turns(rows, lambda found: {"responses": found})


def _all_wanted(body: DeleteTopicsRequest) -> Iterator[_Wanted]:
    yield from (_Wanted(name, None) for name in body.topic_names)
    yield from (_Wanted(topic.name, topic.topic_id) for topic in body.topics)


def _name(services: Services, wanted: _Wanted) -> str | None:
    """The topic's name, even if the client gave its id; None for an unknown id."""
    if wanted.name is not None or wanted.topic_id is None:
        return wanted.name
    topic = services.registry.topics_by_id.get(wanted.topic_id)
    return None if topic is None else topic.name


async def _row(
    services: Services, mutations: Mutations, wanted: _Wanted, twice: set[str | _Wanted]
) -> dict[str, Any]:
    name = _name(services, wanted)
    known = services.registry.topics.get(name or "")
    try:
        checked = _checked(wanted, name, twice)
        with mutations.counted(0 if known is None else known.partition_count):
            topic = await services.topics.delete(checked)
    except KafkaError as error:
        return {
            "name": wanted.name,
            "topic_id": wanted.topic_id,
            "error_code": error.code,
            "error_message": error.message or None,
        }
    return {"name": name, "topic_id": topic.topic_id, "error_code": ErrorCode.NONE}


def _checked(wanted: _Wanted, name: str | None, twice: set[str | _Wanted]) -> str:
    """The name to delete. Raises `KafkaError` INVALID_REQUEST, UNKNOWN_TOPIC_ID."""
    if wanted.name is None and wanted.topic_id is None:
        reason = "Neither topic name nor id were specified."
    elif wanted.name is not None and wanted.topic_id is not None:
        reason = "You may not specify both topic name and topic id."
    elif (name or wanted) in twice:
        reason = "Duplicate topic name." if wanted.name is not None else "Duplicate topic id."
    elif name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic {wanted.topic_id}")
    else:
        return name
    raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def refuse(refusal: Refusal, services: Services) -> Answer:
    """The error in the row of each refused topic; those named by id have a name if the client may know it."""
    keys = dict.fromkeys(key for key, _ in refusal.rows if refusal.is_refused(key, -1))
    return {
        "responses": [
            {
                "name": key if isinstance(key, str) else _shown_name(refusal, key, services),
                "topic_id": None if isinstance(key, str) else key,
                **refusal.row,
            }
            for key in keys
        ]
    }


def _shown_name(refusal: Refusal, topic_id: uuid.UUID, services: Services) -> str | None:
    rights, name = rights_of(refusal.request, services), name_of(topic_id, services)
    if rights is None or name is None or refusal.is_before_login:
        return None
    return name if rights.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name) else None


def _denial_of_long(judged: Judged, rights: Rights, services: Services) -> Denial | None:
    """The same for a request whose topics have been judged: what is left are ids of topics that exist."""
    hidden = denied_topics(AclOperation.DESCRIBE, judged.ids, rights, services)
    refused = judged.refused
    if hidden is not None:
        refused |= {one for one in judged.ids if hidden.is_refused(one, -1)}
    if not refused:
        return None
    return Denial(DENIED_TOPIC[AclOperation.DELETE], lambda topic, _: topic in refused)


def permit(request: Request, rights: Rights, services: Services) -> Denial | None:
    """Needs Delete; on a topic that is named by its id also Describe, since the answer has its name."""
    if request.judged is not None:
        return _denial_of_long(request.judged, rights, services)
    keys = [key for key, _, _ in topics_of(request.body)]
    ids = [key for key in keys if not isinstance(key, str)]
    denials = [
        denied_topics(operation, named, rights, services)
        for operation, named in ((AclOperation.DELETE, keys), (AclOperation.DESCRIBE, ids))
    ]
    refusing = [denial.is_refused for denial in denials if denial is not None]
    if not refusing:
        return None
    error = DENIED_TOPIC[AclOperation.DELETE]
    refused = {key for key in keys if any(is_refused(key, -1) for is_refused in refusing)}
    return Denial(error, lambda key, _: key in refused)


SERVED = Served(
    API,
    handle,
    refuse,
    Names.TOPICS,
    Rows("responses"),
    permit=on_topics(AclOperation.DELETE, permit),
)
