"""OffsetCommit: stored and read back, in every version; what is refused is refused partition by partition."""

from __future__ import annotations

from typing import Any

import pytest

from echoless.broker.handlers.offset_commit import API, TOPIC_IDS_FROM
from echoless.broker.network.turns import ROWS_PER_TURN
from echoless.coordinators.groups.answers import OffsetFetchAnswer
from echoless.coordinators.groups.requests import CommittedPartition, OffsetCommit, OffsetFetch
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_group import (
    GROUP,
    SUBSCRIPTION,
    after_a_commit,
    alone,
    commit,
    commit_request,
    committed,
    created,
    join_values,
)
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, create_topic, nested

VERSIONS = range(API.version_min, API.version_max + 1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_group_without_members_commits(
    kafka: RawConnection, running: Running, version: int
) -> None:
    """A simple group: the position is read back, with its note; the next one replaces it."""
    await create_topic(kafka, "t", 2)
    await created(kafka)
    topic = running.broker.registry.topics["t"]
    key = topic.topic_id if version >= TOPIC_IDS_FROM else "t"
    assert await commit(kafka, {(key, 1): 41}, version) == [(key, 1, ErrorCode.NONE)]
    assert await commit(kafka, {(key, 1): 42}, version) == [(key, 1, ErrorCode.NONE)]
    assert await committed(kafka, {"t": (0, 1)}) == [
        ("t", 0, -1, "", ErrorCode.NONE),
        ("t", 1, 42, "note", ErrorCode.NONE),
    ]


async def test_a_partition_that_does_not_exist_is_refused_by_itself(kafka: RawConnection) -> None:
    """3, for an unknown topic and for an unknown partition; the others are stored."""
    await create_topic(kafka, "t", 1)
    await created(kafka)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await commit(kafka, {("t", 1): 5, ("no", 0): 5, ("t", 0): 7}) == [
        ("t", 1, missing),
        ("t", 0, ErrorCode.NONE),
        ("no", 0, missing),
    ]
    assert await committed(kafka, None) == [("t", 0, 7, "note", ErrorCode.NONE)]


async def test_metadata_that_is_too_long_is_refused_by_itself(kafka: RawConnection) -> None:
    """12 beyond 4,096 characters, which may be more bytes."""
    await create_topic(kafka, "t", 2)
    await created(kafka)
    assert await commit(kafka, {("t", 0): 1}, metadata="é" * 4096) == [("t", 0, ErrorCode.NONE)]
    assert await commit(kafka, {("t", 0): 2}, metadata="é" * 4097) == [
        ("t", 0, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    ]


async def test_only_the_present_generation_commits(kafka: RawConnection) -> None:
    """H4: a member that slept over a rebalance gets 22, one that is gone 25, and nothing moves."""
    await create_topic(kafka, "t", 1)
    await created(kafka)
    generation, member_id = await alone(kafka)
    one = {("t", 0): 1}
    assert await commit(kafka, one, generation=generation, member_id=member_id) == [
        ("t", 0, ErrorCode.NONE)
    ]
    for offsets, old, who, code in (
        ({("t", 0): 2}, generation - 1, member_id, ErrorCode.ILLEGAL_GENERATION),
        ({("t", 0): 3}, generation, "who", ErrorCode.UNKNOWN_MEMBER_ID),
        ({("t", 0): 4}, -1, "", ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert await commit(kafka, offsets, generation=old, member_id=who) == [("t", 0, code)]
    assert await committed(kafka, {"t": (0,)}) == [("t", 0, 1, "note", ErrorCode.NONE)]


@pytest.mark.parametrize(("version", "code"), [(8, 22), (9, 69)])
async def test_a_generation_of_a_group_that_does_not_exist(
    kafka: RawConnection, version: int, code: int
) -> None:
    await create_topic(kafka, "t", 1)
    await created(kafka)
    rows = await commit(kafka, {("t", 0): 1}, version, generation=3, member_id="m")
    assert rows == [("t", 0, code)]


async def test_a_commit_overtakes_none_before_it_on_its_connection(kafka: RawConnection) -> None:
    """One of many partitions takes turns, and would take back what those after it have stored."""
    await create_topic(kafka, "t", 3)
    await created(kafka)
    many = {("t", index): 10 for index in range(ROWS_PER_TURN + 1)}
    requests = [many, {("t", 0): 20}, {("t", 1): 20}, many, {("t", 1): 30}]
    for offsets in requests:
        kafka.send_request(commit_request(offsets))
    for _ in requests:
        await kafka.receive_response("offset_commit", 9)
    found = await committed(kafka, {"t": (0, 1, 2)})
    assert [offset for _, _, offset, _, _ in found] == [10, 30, 10]


@pytest.mark.parametrize("api", ["leave_group", "join_group"])
async def test_a_member_does_not_overtake_its_commit(kafka: RawConnection, api: str) -> None:
    """One that leaves or joins anew right after a commit of many partitions has committed them."""
    await create_topic(kafka, "t", 1)
    await created(kafka)
    generation, member_id = await alone(kafka)
    if api == "leave_group":
        version, identity = 5, nested(api, 5, "MemberIdentity")(member_id=member_id)
        values: dict[str, Any] = {"group_id": GROUP, "members": (identity,)}
    else:
        version, changed = 9, SUBSCRIPTION + b"changed"
        values = join_values(version, changed) | {"member_id": member_id}
    answer = await after_a_commit(
        kafka, api, version, values, generation=generation, member_id=member_id
    )
    assert answer.error_code == ErrorCode.NONE
    assert await committed(kafka, {"t": (0,)}) == [("t", 0, 10, "note", ErrorCode.NONE)]


async def test_a_look_at_the_offsets_does_not_overtake_a_commit(kafka: RawConnection) -> None:
    """It shows what was committed before it."""
    await create_topic(kafka, "t", 1)
    await created(kafka)
    topic = nested("offset_fetch", 7, "OffsetFetchRequestTopic")(name="t", partition_indexes=(0,))
    values = {"group_id": GROUP, "topics": (topic,), "require_stable": True}
    answer = await after_a_commit(kafka, "offset_fetch", 7, values)
    assert answer.topics[0].partitions[0].committed_offset == 10


async def test_a_look_in_the_same_step_as_a_commit_sees_it(
    kafka: RawConnection, running: Running
) -> None:
    """Records are appended at the end of a step, for all of its requests; a look does not wait for that."""
    await create_topic(kafka, "t", 1)
    await created(kafka)
    await committed(kafka, {"t": (0,)})  # the shard is loaded
    groups = running.broker.services.groups
    groups.ask(OffsetCommit(GROUP, -1, "", None, (CommittedPartition("t", 0, 10, -1, ""),)))
    answer = groups.ask(OffsetFetch(GROUP, (("t", 0),), require_stable=True))
    assert isinstance(answer, OffsetFetchAnswer)
    (row,) = answer.partitions
    assert (row.error_code, row.offset) == (ErrorCode.NONE, 10)


@pytest.mark.slow
async def test_many_partitions_are_committed_together(kafka: RawConnection) -> None:
    """More than one turn of the loop takes, in one batch, and read back."""
    await create_topic(kafka, "t", 700)
    await created(kafka)
    rows = await commit(kafka, {("t", index): index for index in range(700)})
    assert [code for _, _, code in rows] == [ErrorCode.NONE] * 700
    found = await committed(kafka, None)
    assert {(index, offset) for _, index, offset, _, _ in found} == {(n, n) for n in range(700)}
    again = await commit(kafka, {("t", index): 2 * index for index in range(701)})
    assert [code for _, _, code in again] == [
        *[ErrorCode.NONE] * 700,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    found = await committed(kafka, None)
    assert {(index, offset) for _, index, offset, _, _ in found} == {(n, 2 * n) for n in range(700)}


async def test_the_id_of_zeros_is_of_no_topic(kafka: RawConnection) -> None:
    """100, for a commit and for a look at it: no topic has this id, and kio reads it as None."""
    await created(kafka)
    key: Any = None
    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    assert await commit(kafka, {(key, 0): 1}, TOPIC_IDS_FROM) == [(None, 0, unknown)]
    assert await committed(kafka, {key: (0,)}, 10) == [(None, 0, -1, "", unknown)]
