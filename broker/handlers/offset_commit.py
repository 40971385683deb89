"""OffsetCommit (8), versions 2-10: a group's positions are stored, all of one request or none.

A partition that does not exist is refused by itself; the coordinator judges all others together. A partition
that is listed twice gets the last offset, and one row. v2-4: a retention time of their own. v5: without it. v6
(KIP-320): leader epochs. v7 (KIP-345): static members. v8: flexible. v9 (KIP-848): a member epoch may be in
place of the generation. v10: topic ids in place of names. Versions 0 and 1 are not served: no schema has them.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.group_answers import packed
from echoless.broker.handlers.merged_responses import Rows
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Names, Served
from echoless.broker.network.order import LanePlace
from echoless.broker.network.request import NeedsNoFrame, Outcome, Request
from echoless.broker.network.sharer import sharer_of
from echoless.broker.network.turns import ROWS_PER_TURN, for_client, work_in_turns
from echoless.coordinators.groups.config import COMMIT_PARTITIONS_MAX
from echoless.coordinators.groups.prepared_commit import prepare
from echoless.coordinators.groups.requests import CommittedPartition, OffsetCommit
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode
from echoless.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetTopic,
    encode_offset_commit_response,
)

if TYPE_CHECKING:
    from echoless.broker.metadata.topic import Topic
    from echoless.broker.services import Services

API = declared(__name__)

_GROUP_NOT_FOUND_FROM: Final = 9
TOPIC_IDS_FROM: Final = 10
"""The first version with topic ids, and without names."""


class _Rows:
    """The rows of the answer, and the partitions that the coordinator judges."""

    def __init__(self, *, has_ids: bool) -> None:
        self.has_ids = has_ids
        self.refused: dict[tuple[Any, int], ErrorCode] = {}
        self.wanted: dict[tuple[Any, int], CommittedPartition] = {}
        self.order: dict[Any, dict[int, None]] = {}
        """The partitions to answer, by topic as the request names it."""

    def packed(self, version: int, codes: tuple[ErrorCode, ...]) -> bytes:
        """The response, with the coordinator's codes for what it was given."""
        found = self.refused
        found.update(zip(self.wanted, codes, strict=True))
        topics = [
            (key, [(index, found[key, index]) for index in indexes])
            for key, indexes in self.order.items()
        ]
        return encode_offset_commit_response(version, topics)


def handle(request: Request, services: Services) -> Outcome:
    """Answers once the offsets are stored on all in-sync replicas."""
    version, body = request.version, request.body
    rows = _Rows(has_ids=version >= TOPIC_IDS_FROM)
    steps = _sort(body.topics, services, rows)
    row_count = sum([len(topic.partitions) or 1 for topic in body.topics])
    commits = request.peer.order.commits
    if row_count > ROWS_PER_TURN or commits.places:
        return NeedsNoFrame(_later(commits.enter(), steps, request, rows, services))
    for _ in steps:
        pass
    if not rows.wanted:
        return rows.packed(version, ())
    answered = services.groups.ask(_commit(request, rows))
    return packed(answered, lambda answer: rows.packed(version, answer.error_codes))


async def _later(
    place: LanePlace, steps: Iterator[None], request: Request, rows: _Rows, services: Services
) -> bytes:
    version, answered, host = request.version, None, request.peer.host
    with place:
        await work_in_turns(steps)
        commit = _commit(request, rows)
        if ROWS_PER_TURN < len(commit.partitions) <= COMMIT_PARTITIONS_MAX:
            commit = await for_client(host, partial(prepare, commit, services.clock.wall_ms()))
        await place.come()
        if commit.partitions:
            answered = services.groups.ask(commit)
    answer: Any = await answered if isinstance(answered, Awaitable) else answered
    codes = () if answer is None else answer.error_codes
    return await for_client(host, partial(rows.packed, version, codes))


def _sort(topics: tuple[OffsetTopic, ...], services: Services, rows: _Rows) -> Iterator[None]:
    """Sorts the partitions into those that exist and the others, one at a time."""
    for topic in topics:
        key = topic.topic
        known, missing = find_topic(key, services, has_ids=rows.has_ids)
        indexes = rows.order.setdefault(key, {})
        if not topic.partitions:
            yield
        for index, offset, leader_epoch, metadata in topic.partitions:
            indexes[index] = None
            if known is None or index not in known.assignment:
                rows.refused[key, index] = missing
            else:
                rows.wanted[key, index] = CommittedPartition(
                    known.name, index, offset, leader_epoch, metadata or ""
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


def _commit(request: Request, rows: _Rows) -> OffsetCommit:
    body: OffsetCommitRequest = request.body
    return OffsetCommit(
        group_id=body.group_id,
        generation_id=body.generation_id_or_member_epoch,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
        partitions=tuple(rows.wanted.values()),
        retention_time_ms=body.retention_time_ms,
        knows_missing_groups=request.version >= _GROUP_NOT_FOUND_FROM,
        sharer=sharer_of(request.peer),
    )


def refuse(refusal: Refusal, _services: Services) -> bytes:
    """The error in the row of each refused partition."""
    code = refusal.error.code
    topics = [(key, [(index, code) for index in indexes]) for key, indexes in refusal.rows]
    return encode_offset_commit_response(refusal.request.version, topics)


SERVED = Served(
    API,
    handle,
    refuse,
    Names.PARTITIONS,
    Rows("topics", "partitions"),
    permit=permits.group_and_topics(AclOperation.READ, AclOperation.READ),
)
