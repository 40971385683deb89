"""OffsetFetch: what was committed, or -1, in every version."""

from __future__ import annotations

import pytest

from echoless.broker.handlers import answer_room
from echoless.broker.handlers.offset_fetch import API, GROUPS_FROM, TOPIC_IDS_FROM
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_group import call, commit, committed, committed_body, created
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, create_topic, nested

VERSIONS = range(API.version_min, API.version_max + 1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_was_committed_is_found(
    kafka: RawConnection, running: Running, version: int
) -> None:
    """By partition, or from version 2 on for all of them."""
    await create_topic(kafka, "t", 4)
    await created(kafka)
    await commit(kafka, {("t", 3): 7})
    topic_id = running.broker.registry.topics["t"].topic_id
    key = topic_id if version >= TOPIC_IDS_FROM else "t"
    found, none = (key, 3, 7, "note", ErrorCode.NONE), (key, 0, -1, "", ErrorCode.NONE)
    assert await committed(kafka, {key: (3, 0)}, version) == [found, none]
    if version >= 2:
        assert await committed(kafka, None, version) == [found]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_group_that_does_not_exist_has_no_offsets(
    kafka: RawConnection, version: int
) -> None:
    """Nor does a topic; an unknown id is an error of its own."""
    await created(kafka)
    if version >= TOPIC_IDS_FROM:
        import uuid

        key = uuid.UUID(int=5)
        row = (key, 0, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)
        assert await committed(kafka, {key: (0,)}, version) == [row]
    else:
        row = ("no", 0, -1, "", ErrorCode.NONE)
        assert await committed(kafka, {"no": (0,)}, version) == [row]


@pytest.mark.parametrize("version", VERSIONS)
async def test_another_broker_has_to_be_asked(kafka: RawConnection, version: int) -> None:
    """16 before `__consumer_offsets` is there: of the group, in version 1 of each partition."""
    key = "t"
    if version >= TOPIC_IDS_FROM:
        assert await committed(kafka, None, version) == [
            ("", -1, -1, "", ErrorCode.NOT_COORDINATOR)
        ]
        return
    (row,) = await committed(kafka, {key: (0,)}, version)
    assert row[-1] is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("versions", "code"),
    [
        (range(1, GROUPS_FROM), ErrorCode.NOT_COORDINATOR),
        (range(GROUPS_FROM, TOPIC_IDS_FROM), ErrorCode.STALE_MEMBER_EPOCH),
    ],
)
async def test_partitions_of_a_refused_group_are_to_be_asked_for_again(
    kafka: RawConnection, versions: range, code: ErrorCode
) -> None:
    """Their rows say so: without them librdkafka never asks again, and aiokafka takes them for not committed."""
    for version in versions:
        body = committed_body({"t": (3, 0)}, version)
        answer = await call(kafka, "offset_fetch", version, require_stable=True, **body)
        (group,) = answer.groups if version >= GROUPS_FROM else (answer,)
        assert version == 1 or group.error_code == ErrorCode.NOT_COORDINATOR
        (topic,) = group.topics
        rows = [(row.partition_index, row.committed_offset) for row in topic.partitions]
        assert rows == [(3, -1), (0, -1)]
        assert {row.error_code for row in topic.partitions} == {code}


async def test_each_of_several_groups_is_answered(kafka: RawConnection) -> None:
    """In the order of the request (KIP-709)."""
    await create_topic(kafka, "t", 1)
    await created(kafka)
    await commit(kafka, {("t", 0): 5}, group="b")
    group = nested("offset_fetch", GROUPS_FROM, "OffsetFetchRequestGroup")
    answer = await kafka.call(
        "offset_fetch",
        GROUPS_FROM,
        groups=tuple(group(group_id=name, topics=None) for name in ("a", "b")),
        require_stable=False,
    )
    found = [
        (one.group_id, [row.committed_offset for topic in one.topics for row in topic.partitions])
        for one in answer.groups
    ]
    assert found == [("a", []), ("b", [5])]


async def test_a_group_that_is_named_again_is_answered_once(kafka: RawConnection) -> None:
    """With what all its mentions ask for: ten thousand mentions are no ten thousand copies of its offsets."""
    await create_topic(kafka, "t", 3)
    await created(kafka)
    await commit(kafka, {("t", index): index for index in range(3)}, group="a")
    group = nested("offset_fetch", GROUPS_FROM, "OffsetFetchRequestGroup")
    topic = nested("offset_fetch", GROUPS_FROM, "OffsetFetchRequestTopics")
    mentions = [
        group(group_id="a", topics=(topic(name="t", partition_indexes=(index, 2)),))
        for index in (0, 1, 1)
    ]
    for more, partitions in (((), [0, 2, 1]), ((group(group_id="a", topics=None),), [0, 1, 2])):
        answer = await kafka.call(
            "offset_fetch", GROUPS_FROM, groups=(*mentions, *more), require_stable=False
        )
        (found,) = answer.groups
        (rows,) = found.topics
        assert [row.partition_index for row in rows.partitions] == partitions
        assert [row.committed_offset for row in rows.partitions] == partitions


async def test_groups_for_which_an_answer_has_no_room_are_to_be_asked_for_again(
    kafka: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request gets ahead by a group at least, whatever its offsets take."""
    monkeypatch.setattr(answer_room, "BYTES_MAX", 1)
    await create_topic(kafka, "t", 3)
    await created(kafka)
    names = ["a", "b", "c"]
    for name in names:
        await commit(kafka, {("t", index): index for index in range(3)}, group=name)
    group = nested("offset_fetch", GROUPS_FROM, "OffsetFetchRequestGroup")
    left, requests = names, 0
    while left:
        answer = await kafka.call(
            "offset_fetch",
            GROUPS_FROM,
            groups=tuple(group(group_id=name, topics=None) for name in left),
            require_stable=False,
        )
        assert [one.group_id for one in answer.groups] == left
        codes = [one.error_code for one in answer.groups]
        assert codes == [
            ErrorCode.NONE,
            *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * (len(left) - 1),
        ]
        assert [len(one.topics) for one in answer.groups] == [1, *[0] * (len(left) - 1)]
        left, requests = left[1:], requests + 1
    assert requests == len(names)
