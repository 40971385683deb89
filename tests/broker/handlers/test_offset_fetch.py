"""OffsetFetch: what was committed, or -1, in every version."""

from __future__ import annotations

import pytest

from echoless.broker.handlers.offset_fetch import API, GROUPS_FROM, TOPIC_IDS_FROM
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_group import commit, committed, created
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
