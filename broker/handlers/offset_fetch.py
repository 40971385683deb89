"""OffsetFetch (9), versions 1-8: no group has committed an offset, as groups are not supported.

Sent by consumers that have a group id and assign partitions without a starting offset; they then
apply their own reset policy. A broker that names itself as coordinator has to answer: librdkafka 2.16
crashes if the API is missing.
v2: all topics if none are named. v8 (KIP-709) asks for several groups at once. Not served: v9 and
v10, which add the requesting member, and nothing else that concerns us.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from broker.handlers.refusals import Refusal, refused_partitions
from broker.handlers.served import Names, Served
from broker.network.request import Answer, Request
from protocol.errors import ErrorCode
from protocol.lean_named_tuple import NamedTuple
from protocol.registry import Api
from protocol.typed_requests import typed

if TYPE_CHECKING:
    from broker.services import Services

API = Api(key=9, name="offset_fetch", version_min=1, version_max=8, flexible_from=6)


class OffsetFetchRequest(NamedTuple):
    topics: tuple[Any, ...] | None = ()
    """The topics of the only group, before v8; None: all."""
    groups: tuple[Any, ...] = ()


def handle(request: Request, _services: Services) -> Answer:
    """Offset -1, "none", for every partition named."""
    body = typed(OffsetFetchRequest, request.body)
    groups = [
        {"group_id": group.group_id, "topics": _nothing_committed(group.topics or ())}
        for group in body.groups
    ]
    return {"topics": _nothing_committed(body.topics or ()), "groups": groups}


def _nothing_committed(topics: Iterable[Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": index,
                    "committed_offset": -1,
                    "metadata": "",
                    "error_code": ErrorCode.NONE,
                }
                for index in topic.partition_indexes
            ],
        }
        for topic in topics
    ]


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error of each group; in version 1, which has no such error, of each partition."""
    code = refusal.error.code
    groups = [
        {"group_id": group.group_id, "error_code": code, "topics": ()}
        for group in typed(OffsetFetchRequest, refusal.request.body).groups
    ]
    topics = refused_partitions(refusal, committed_offset=-1, metadata="")
    return {"error_code": code, "topics": topics, "groups": groups}


SERVED = Served(API, handle, refuse, Names.PARTITIONS)
