"""ListPartitionReassignments (46), version 0: the partitions now moving to other brokers (KIP-455).

Lists only partitions that are being reassigned, with all the replicas they have at the moment;
others, and unknown ones, are left out. Any broker answers, from its own view. The timeout is ignored.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Names, Served
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.broker.network.turns import in_turns
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from echoless.broker.metadata.topic import Topic
    from echoless.broker.services import Services

API = declared(__name__)


def handle(request: Request, services: Services) -> Outcome:
    """The topics in the order of the request; all of them if none is named."""
    topics: list[dict[str, Any]] = []
    return in_turns(
        _rows(_wanted(request.body.topics, services), topics),
        lambda _: {"error_code": ErrorCode.NONE, "error_message": None, "topics": topics},
    )


def _rows(
    wanted: Iterable[tuple[Topic, Container[int]]], topics: list[dict[str, Any]]
) -> Iterator[object]:
    """Adds the topics to the answer, a partition at a time."""
    for topic, partitions in wanted:
        rows = []
        for one in topic.reassignments:
            if one in partitions:
                rows.append(_row(topic, one))
            yield None
        if rows:
            topics.append({"name": topic.name, "partitions": rows})
        yield None


def _wanted(topics: Any, services: Services) -> Iterator[tuple[Topic, Container[int]]]:
    known = services.registry.topics
    if topics is None:
        yield from ((topic, topic.assignment) for topic in list(known.values()))
        return
    for wanted in topics:
        if wanted.name in known:
            yield known[wanted.name], frozenset(wanted.partition_indexes)


def _row(topic: Topic, partition: int) -> dict[str, Any]:
    adding, removing = topic.reassignments[partition]
    return {
        "partition_index": partition,
        "replicas": topic.assignment[partition],
        "adding_replicas": adding,
        "removing_replicas": removing,
    }


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error, and no rows."""
    return {**refusal.row, "topics": ()}


SERVED = Served(
    API, handle, refuse, Names.PARTITIONS, permit=permits.cluster(AclOperation.DESCRIBE)
)
