"""OffsetCommit (8), versions 2-10: a group's positions are stored, all of one request or none.

A partition that does not exist is refused by itself; the coordinator judges all others together. A partition
that is listed twice gets the last offset, and one row. v2-4: a retention time of their own. v5: without it. v6
(KIP-320): leader epochs. v7 (KIP-345): static members. v8: flexible. v9 (KIP-848): a member epoch may be in
place of the generation. v10: topic ids in place of names. Versions 0 and 1 are not served: no schema has them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from broker.handlers import permits
from broker.handlers.group_answers import translated
from broker.handlers.merged_responses import Rows
from broker.handlers.refusals import Refusal, refused_partitions
from broker.handlers.request_topics import topic_key
from broker.handlers.served import Names, Served
from broker.network.request import Answer, NeedsNoFrame, Outcome, Request
from broker.network.turns import ROWS_PER_TURN, ManyRows, work_in_turns
from coordinators.groups.answers import OffsetCommitAnswer
from coordinators.groups.requests import NO_LEADER_EPOCH, CommittedPartition, OffsetCommit
from protocol.acl import AclOperation
from protocol.errors import ErrorCode
from protocol.lean_named_tuple import NamedTuple
from protocol.registry import Api
from protocol.typed_requests import typed

if TYPE_CHECKING:
    from broker.metadata.topic import Topic
    from broker.services import Services

API = Api(key=8, name="offset_commit", version_min=2, version_max=10, flexible_from=8)

_GROUP_NOT_FOUND_FROM: Final = 9
TOPIC_IDS_FROM: Final = 10
"""The first version with topic ids, and without names."""


class OffsetCommitRequest(NamedTuple):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    topics: tuple[Any, ...]
    group_instance_id: str | None = None
    retention_time: timedelta = timedelta(milliseconds=-1)


class RequestPartition(NamedTuple):
    partition_index: int
    committed_offset: int
    committed_metadata: str | None
    committed_leader_epoch: int = NO_LEADER_EPOCH


class _Rows:
    """The rows of the answer, and the partitions that the coordinator judges."""

    def __init__(self, *, has_ids: bool) -> None:
        self.has_ids = has_ids
        self.refused: dict[tuple[Any, int], ErrorCode] = {}
        self.wanted: dict[tuple[Any, int], CommittedPartition] = {}
        self.order: dict[Any, dict[int, None]] = {}
        """The partitions to answer, by topic as the request names it."""

    def fields(self, codes: tuple[ErrorCode, ...]) -> dict[str, Any]:
        """The response, with the coordinator's codes for what it was given."""
        found = dict(zip(self.wanted, codes, strict=True)) | self.refused
        topics = [
            {
                **topic_field(key, has_ids=self.has_ids),
                "partitions": [
                    {"partition_index": index, "error_code": found[key, index]} for index in indexes
                ],
            }
            for key, indexes in self.order.items()
        ]
        fields = {"topics": topics}
        return ManyRows(fields) if len(found) > ROWS_PER_TURN else fields


def handle(request: Request, services: Services) -> Outcome:
    """Answers once the offsets are stored on all in-sync replicas."""
    body = typed(OffsetCommitRequest, request.body)
    rows = _Rows(has_ids=request.version >= TOPIC_IDS_FROM)
    steps = _sort(body.topics, services, rows)
    if sum(len(topic.partitions) for topic in body.topics) > ROWS_PER_TURN:
        return NeedsNoFrame(_later(steps, request.version, body, rows, services))
    for _ in steps:
        pass
    return _commit(request.version, body, rows, services)


async def _later(
    steps: Iterator[None],
    version: int,
    body: OffsetCommitRequest,
    rows: _Rows,
    services: Services,
) -> Answer:
    await work_in_turns(steps)
    outcome = _commit(version, body, rows, services)
    return await outcome if isinstance(outcome, NeedsNoFrame) else outcome  # type: ignore[return-value]


def _sort(topics: tuple[Any, ...], services: Services, rows: _Rows) -> Iterator[None]:
    """Sorts the partitions into those that exist and the others, one at a time."""
    for topic in topics:
        key = topic_key(topic)
        known, missing = find_topic(key, services, has_ids=rows.has_ids)
        indexes = rows.order.setdefault(key, {})
        for one in topic.partitions:
            partition = typed(RequestPartition, one)
            index = partition.partition_index
            indexes[index] = None
            if known is None or index not in known.assignment:
                rows.refused[key, index] = missing
            else:
                rows.wanted[key, index] = CommittedPartition(
                    topic=known.name,
                    partition=index,
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.committed_metadata or "",
                )
            yield


def find_topic(
    key: str | uuid.UUID, services: Services, *, has_ids: bool
) -> tuple[Topic | None, ErrorCode]:
    """The topic by name or id, and the error for its partitions that do not exist.

    With ids, an empty name is the id of zeros.
    """
    if not has_ids:
        assert isinstance(key, str)
        return services.registry.topics.get(key), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    known = services.registry.topics_by_id.get(key) if isinstance(key, uuid.UUID) else None
    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    return known, unknown if known is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def topic_field(key: str | uuid.UUID, *, has_ids: bool) -> dict[str, Any]:
    """The field of a response's row that names its topic; with ids, an empty name is the id of zeros."""
    return {"topic_id": key or None} if has_ids else {"name": key}


def _commit(version: int, body: OffsetCommitRequest, rows: _Rows, services: Services) -> Outcome:
    if not rows.wanted:
        return rows.fields(())
    commit = OffsetCommit(
        group_id=body.group_id,
        generation_id=body.generation_id_or_member_epoch,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
        partitions=tuple(rows.wanted.values()),
        retention_time_ms=body.retention_time // timedelta(milliseconds=1),
        knows_missing_groups=version >= _GROUP_NOT_FOUND_FROM,
    )
    return translated(services.groups.ask(commit), lambda answer: _fields(rows, answer))


def _fields(rows: _Rows, answer: OffsetCommitAnswer) -> dict[str, Any]:
    return rows.fields(answer.error_codes)


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each refused partition."""
    has_ids = refusal.request.version >= TOPIC_IDS_FROM
    rows = refused_partitions(refusal)
    topics = [{**row, **topic_field(row["name"], has_ids=has_ids)} for row in rows]
    return {"topics": topics}


SERVED = Served(
    API,
    handle,
    refuse,
    Names.PARTITIONS,
    Rows("topics", "partitions"),
    permit=permits.group_and_topics(AclOperation.READ, AclOperation.READ),
)
