"""OffsetFetch (9), versions 1-8: no group has committed an offset, as groups are not supported.

Sent by consumers that have a group id and assign partitions without a starting offset; they then
apply their own reset policy. A broker that names itself as coordinator has to answer: librdkafka 2.16
crashes if the API is missing.
v2: all topics if none are named. v8 (KIP-709) asks for several groups at once. Not served: v9 and
v10, which add the requesting member, and nothing else that concerns us.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from broker.handlers import permits
from broker.handlers.permits import may, rights_of
from broker.handlers.refusals import Refusal, refused_partitions
from broker.handlers.served import Names, Served
from broker.network.request import Answer, Outcome, Request
from broker.network.turns import in_turns
from protocol.acl import AclOperation, ResourceType
from protocol.errors import ErrorCode
from protocol.lean_named_tuple import NamedTuple
from protocol.registry import Api
from protocol.typed_requests import typed

if TYPE_CHECKING:
    from broker.authorization.access import Rights
    from broker.services import Services

API = Api(key=9, name="offset_fetch", version_min=1, version_max=8, flexible_from=6)


_GROUPS_FROM: Final = 8
"""The first version that may ask for several groups."""


class OffsetFetchRequest(NamedTuple):
    group_id: str = ""
    """The only group, before v8."""
    topics: tuple[Any, ...] | None = ()
    """Its topics; None: all."""
    groups: tuple[Any, ...] = ()


def handle(request: Request, services: Services) -> Outcome:
    """Offset -1, "none", for every partition named."""
    body = typed(OffsetFetchRequest, request.body)
    rights = rights_of(request, services)
    if request.version >= _GROUPS_FROM:
        groups: list[dict[str, Any]] = []
        return in_turns(_of_groups(rights, body.groups, groups), lambda _: {"groups": groups})
    row = _row(rights, body.group_id)
    # Version 1 has the error of a group in the rows of partitions alone, so they are there.
    steps = _nothing_committed(rights, body.topics or (), row["topics"], row["error_code"])
    return in_turns(steps, lambda _: row)


def _of_groups(
    rights: Rights | None, wanted: Iterable[Any], groups: list[dict[str, Any]]
) -> Iterator[object]:
    """Adds the groups to the answer, a row at a time."""
    for group in wanted:
        row = _row(rights, group.group_id)
        groups.append({"group_id": group.group_id, **row})
        yield None
        if not row["error_code"]:
            yield from _nothing_committed(rights, group.topics or (), row["topics"])


def _row(rights: Rights | None, group_id: str) -> dict[str, Any]:
    """The answer for one group, without its topics."""
    is_allowed = may(rights, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
    code = ErrorCode.NONE if is_allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED
    return {"error_code": code, "topics": []}


def _nothing_committed(
    rights: Rights | None,
    wanted: Iterable[Any],
    topics: list[dict[str, Any]],
    error: ErrorCode = ErrorCode.NONE,
) -> Iterator[object]:
    """Adds the topics to the answer, a row at a time.

    Unless `error` is that of each partition, topics are denied one by one; "all topics" leaves out those
    denied.
    """
    for topic in wanted:
        code = error
        if not error and not may(rights, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partitions: list[dict[str, Any]] = []
        topics.append({"name": topic.name, "partitions": partitions})
        yield None
        for index in topic.partition_indexes:
            partitions.append(
                {
                    "partition_index": index,
                    "committed_offset": -1,
                    "metadata": "",
                    "error_code": code,
                }
            )
            yield None


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error of each group; in version 1, which has no such error, of each partition."""
    code = refusal.error.code
    groups = [
        {"group_id": group.group_id, "error_code": code, "topics": ()}
        for group in typed(OffsetFetchRequest, refusal.request.body).groups
    ]
    topics = refused_partitions(refusal, committed_offset=-1, metadata="")
    return {"error_code": code, "topics": topics, "groups": groups}


SERVED = Served(API, handle, refuse, Names.PARTITIONS, permit=permits.asked_by_handler)
