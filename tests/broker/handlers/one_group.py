"""A consumer group of raw requests, of any version of each API."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import uuid
from collections.abc import Mapping
from typing import Any

from echoless.broker.handlers import offset_commit, offset_fetch
from echoless.broker.network.turns import ROWS_PER_TURN
from echoless.protocol.errors import ErrorCode
from tests.support.raw_client import RawConnection, message, nested

GROUP = "g"
SESSION = datetime.timedelta(milliseconds=6000)
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\0\0\0\0"
"""Version 0 of the consumer protocol: the topic `t`."""


def _fields(api: str, version: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that the version has."""
    known = {one.name for one in dataclasses.fields(message(api, version, "Request"))}
    return {name: value for name, value in values.items() if name in known}


async def call(kafka: RawConnection, api: str, version: int, **values: Any) -> Any:
    """The answer to a request; values that the version lacks are left out."""
    return await kafka.call(api, version, **_fields(api, version, values))


async def join(
    kafka: RawConnection,
    version: int = 9,
    *,
    member_id: str = "",
    instance: str | None = None,
    group: str = GROUP,
    session: datetime.timedelta = SESSION,
    protocol_type: str = "consumer",
) -> Any:
    """The answer to JoinGroup; a member that is given its id first (79) joins with it."""
    values = join_values(version) | {
        "group_id": group,
        "session_timeout": session,
        "rebalance_timeout": session,
        "group_instance_id": instance,
        "protocol_type": protocol_type,
    }
    answer = await call(kafka, "join_group", version, **values | {"member_id": member_id})
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        member_id = answer.member_id
        return await call(kafka, "join_group", version, **values | {"member_id": member_id})
    return answer


def join_values(version: int, subscription: bytes = SUBSCRIPTION) -> dict[str, Any]:
    """The fields of a JoinGroup, but for the member's id."""
    protocol = nested("join_group", version, "JoinGroupRequestProtocol")
    return {
        "group_id": GROUP,
        "session_timeout": SESSION,
        "rebalance_timeout": SESSION,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": (protocol(name="range", metadata=subscription),),
        "reason": "a test",
    }


async def sync(
    kafka: RawConnection,
    generation: int,
    member_id: str,
    assignments: Mapping[str, bytes],
    version: int = 5,
    **values: Any,
) -> Any:
    """The answer to SyncGroup."""
    assignment = nested("sync_group", version, "SyncGroupRequestAssignment")
    given: dict[str, Any] = {
        "group_id": GROUP,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": tuple(
            assignment(member_id=one, assignment=data) for one, data in assignments.items()
        ),
    }
    return await call(kafka, "sync_group", version, **{**given, **values})


async def heartbeat(
    kafka: RawConnection, generation: int, member_id: str, version: int = 4, **values: Any
) -> ErrorCode:
    """The code of a Heartbeat's answer."""
    given = {"group_id": GROUP, "group_instance_id": None, **values}
    answer = await call(
        kafka, "heartbeat", version, generation_id=generation, member_id=member_id, **given
    )
    return ErrorCode(answer.error_code)


async def alone(kafka: RawConnection, version: int = 9, **values: Any) -> tuple[int, str]:
    """Generation and id of the only member of a stable group."""
    joined = await join(kafka, version, **values)
    assert joined.error_code == ErrorCode.NONE
    synced = await sync(
        kafka,
        joined.generation_id,
        joined.member_id,
        {joined.member_id: b"all"},
        group_instance_id=values.get("instance"),
    )
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"all")
    return joined.generation_id, joined.member_id


async def created(kafka: RawConnection, group: str = GROUP) -> None:
    """Returns when `__consumer_offsets` is there and serves the group."""
    answer = await kafka.call("find_coordinator", 4, key_type=0, coordinator_keys=(group,))
    assert answer.coordinators[0].error_code == ErrorCode.NONE


def commit_request(
    offsets: Mapping[tuple[str | uuid.UUID, int], int],
    version: int = 9,
    *,
    group: str = GROUP,
    generation: int = -1,
    member_id: str = "",
    metadata: str | None = "note",
) -> Any:
    """An OffsetCommit with a row for each topic and partition."""
    field = _topic_field(version)
    topic_class = nested("offset_commit", version, "OffsetCommitRequestTopic")
    partition_class = nested("offset_commit", version, "OffsetCommitRequestPartition")
    epoch = {"committed_leader_epoch": 3} if version >= 6 else {}
    topics = tuple(
        topic_class(
            **{field: key},
            partitions=(
                partition_class(
                    partition_index=index,
                    committed_offset=offset,
                    committed_metadata=metadata,
                    **epoch,
                ),
            ),
        )
        for (key, index), offset in offsets.items()
    )
    values = {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "retention_time": datetime.timedelta(milliseconds=-1),
        "topics": topics,
    }
    request_class = message("offset_commit", version, "Request")
    return request_class(**_fields("offset_commit", version, values))


async def after_a_commit(
    kafka: RawConnection,
    api: str,
    version: int,
    values: Mapping[str, Any],
    *,
    generation: int = -1,
    member_id: str = "",
) -> Any:
    """The answer to a request sent right behind a commit that takes several turns; it commits 10 for `t-0`."""
    await call(
        kafka, api, version, **{**values, "group_id": "another"}
    )  # the broker imports what it needs
    many = {("t", index): 10 for index in range(ROWS_PER_TURN + 1)}
    kafka.send_request(commit_request(many, generation=generation, member_id=member_id))
    kafka.send_request(message(api, version, "Request")(**_fields(api, version, values)))
    await kafka.receive_response("offset_commit", 9)
    return await kafka.receive_response(api, version)


async def commit(
    kafka: RawConnection,
    offsets: Mapping[tuple[str | uuid.UUID, int], int],
    version: int = 9,
    **values: Any,
) -> list[tuple[str | uuid.UUID, int, ErrorCode]]:
    """Topic, partition and code of each row of an OffsetCommit; `values` as for `commit_request`."""
    kafka.send_request(commit_request(offsets, version, **values))
    answer = await kafka.receive_response("offset_commit", version)
    field = _topic_field(version)
    return [
        (getattr(topic, field), row.partition_index, ErrorCode(row.error_code))
        for topic in answer.topics
        for row in topic.partitions
    ]


def _topic_field(version: int) -> str:
    return "topic_id" if version >= offset_commit.TOPIC_IDS_FROM else "name"


async def committed(
    kafka: RawConnection,
    partitions: Mapping[str | uuid.UUID, tuple[int, ...]] | None,
    version: int = 9,
    *,
    group: str = GROUP,
) -> list[tuple[Any, ...]]:
    """Topic, partition, offset, metadata and code of each row of an OffsetFetch; None asks for all."""
    many = version >= offset_fetch.GROUPS_FROM
    field = "topic_id" if version >= offset_fetch.TOPIC_IDS_FROM else "name"
    fields = committed_body(partitions, version, group=group)
    answer = await call(kafka, "offset_fetch", version, require_stable=True, **fields)
    if many:
        (answer,) = answer.groups
        assert answer.group_id == group
    if version >= 2 and answer.error_code:
        return [("", -1, -1, "", ErrorCode(answer.error_code))]
    return [
        (
            getattr(topic, field),
            row.partition_index,
            row.committed_offset,
            row.metadata,
            ErrorCode(row.error_code),
        )
        for topic in answer.topics
        for row in topic.partitions
    ]


def committed_body(
    partitions: Mapping[str | uuid.UUID, tuple[int, ...]] | None,
    version: int,
    *,
    group: str = GROUP,
) -> dict[str, Any]:
    """The fields of an OffsetFetch of one group; None asks for all partitions."""
    many = version >= offset_fetch.GROUPS_FROM
    kind = "OffsetFetchRequestTopics" if many else "OffsetFetchRequestTopic"
    field = "topic_id" if version >= offset_fetch.TOPIC_IDS_FROM else "name"
    topics = None
    if partitions is not None:
        topics = tuple(
            nested("offset_fetch", version, kind)(**{field: key}, partition_indexes=indexes)
            for key, indexes in partitions.items()
        )
    fields: dict[str, Any] = {"group_id": group, "topics": topics}
    if many:
        group_class = nested("offset_fetch", version, "OffsetFetchRequestGroup")
        if version >= 9:
            fields |= {"member_id": None, "member_epoch": -1}
        fields = {"groups": (group_class(**fields),)}
    return fields


async def two_members(kafka: RawConnection, other: RawConnection) -> tuple[Any, Any]:
    """The answers to JoinGroup of the leader (on `kafka`) and a second member, in generation 2."""
    first = await join(kafka)
    joining = asyncio.ensure_future(join(other))
    code = ErrorCode.NONE
    while code is not ErrorCode.REBALANCE_IN_PROGRESS:
        code = await heartbeat(kafka, 1, first.member_id)
    return await join(kafka, member_id=first.member_id), await joining
