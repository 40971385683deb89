"""OffsetDelete (47), version 0: forgets committed offsets of topics that no member subscribes to (KIP-496)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.group_answers import translated, with_rows
from echoless.broker.handlers.merged_responses import Rows
from echoless.broker.handlers.refusals import Refusal, refused_partitions
from echoless.broker.handlers.served import Names, Served
from echoless.broker.network.denial import everything
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.coordinators.groups.answers import OffsetDeleteAnswer
from echoless.coordinators.groups.requests import OffsetDelete
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)

ROWS_MAX: Final = 5_000
"""Topics and partitions of one request, which is one step, as for a commit."""


def handle(request: Request, services: Services) -> Outcome:
    """One row per partition; an error of the group is on top, without rows."""
    body = request.body
    if sum([len(topic.partitions) or 1 for topic in body.topics]) > ROWS_MAX:
        return {"error_code": ErrorCode.INVALID_REQUEST, "topics": ()}
    order: dict[str, dict[int, None]] = {}
    for topic in body.topics:
        order.setdefault(topic.name, {}).update(
            (one.partition_index, None) for one in topic.partitions
        )
    topics = services.registry.topics
    wanted = tuple(
        (name, index)
        for name, indexes in order.items()
        for index in indexes
        if name in topics and index in topics[name].assignment
    )

    def fields(answer: OffsetDeleteAnswer) -> dict[str, Any]:
        if answer.error_code:
            return {"error_code": answer.error_code, "topics": ()}
        codes = dict(zip(wanted, answer.error_codes, strict=True))
        rows = [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": index,
                        "error_code": codes.get(
                            (name, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    }
                    for index in indexes
                ],
            }
            for name, indexes in order.items()
        ]
        return with_rows({"error_code": ErrorCode.NONE, "topics": rows}, wanted)

    return translated(services.groups.ask(OffsetDelete(body.group_id, wanted)), fields)


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error of a whole request on top; that of topics in the row of each refused partition."""
    code = refusal.error.code
    if refusal.is_refused is everything and code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return {"error_code": code, "topics": ()}
    return {"error_code": ErrorCode.NONE, "topics": refused_partitions(refusal)}


SERVED = Served(
    API,
    handle,
    refuse,
    Names.PARTITIONS,
    Rows("topics", "partitions"),
    permit=permits.group_and_topics(AclOperation.DELETE, AclOperation.READ),
)
