"""Consumer groups under ACLs: Read to take part, Describe to look, Delete to delete."""

from __future__ import annotations

import pytest

from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_group import alone, call, commit, committed, heartbeat, join, sync
from tests.broker.handlers.test_consumer_group_describe import describe
from tests.broker.handlers.test_consumer_group_heartbeat import beat
from tests.support.acls import GROUP, AclEditor
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, nested

READ, DESCRIBE, DELETE = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE
DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.fixture(autouse=True)
async def _offsets_topic(running: Running) -> None:
    """The topic of the groups is there."""
    await running.broker.groups.topic.until_created()


async def test_members_need_read_on_the_group(kafka: RawConnection, acls: AclEditor) -> None:
    """30 for joining, synchronising, being alive and leaving; with Read all of it works."""
    assert (await join(kafka)).error_code == DENIED
    assert (await sync(kafka, 1, "m", {})).error_code == DENIED
    assert await heartbeat(kafka, 1, "m") is DENIED
    assert (await call(kafka, "leave_group", 5, group_id="g", members=())).error_code == DENIED
    await acls.allow(READ, "g", resource_type=GROUP)
    generation, member_id = await alone(kafka)
    assert await heartbeat(kafka, generation, member_id) is ErrorCode.NONE


async def test_a_commit_needs_read_on_the_group_and_on_each_topic(
    kafka: RawConnection, acls: AclEditor
) -> None:
    """30 for everything, then 29 for a topic, while the other one is stored."""
    both = {("t", 0): 1, ("u", 0): 2}
    assert await commit(kafka, both) == [("t", 0, DENIED), ("u", 0, DENIED)]
    await acls.allow(READ, "g", resource_type=GROUP)
    await acls.allow(READ, "t")
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert sorted(await commit(kafka, both)) == [("t", 0, ErrorCode.NONE), ("u", 0, denied)]
    await acls.allow(DESCRIBE, "u")
    assert await committed(kafka, {"t": (0,), "u": (0,)}) == [
        ("t", 0, 1, "note", ErrorCode.NONE),
        ("u", 0, -1, "", ErrorCode.NONE),
    ]


async def test_groups_that_may_not_be_described_are_not_shown(
    kafka: RawConnection, acls: AclEditor
) -> None:
    """Left out of ListGroups, 30 in DescribeGroups; Describe on the cluster lists all of them."""
    for operation, name in ((READ, "g"), (READ, "h")):
        await acls.allow(operation, name, resource_type=GROUP)
    await acls.allow(READ, "t")
    for group in ("g", "h"):
        await commit(kafka, {("t", 0): 1}, group=group)
        await acls.revoke(READ, group, resource_type=GROUP)

    async def listed() -> set[str]:
        answer = await call(kafka, "list_groups", 4, states_filter=())
        assert answer.error_code == ErrorCode.NONE
        return {one.group_id for one in answer.groups}

    assert await listed() == set()
    await acls.allow(DESCRIBE, "g", resource_type=GROUP)
    assert await listed() == {"g"}
    answer = await call(
        kafka, "describe_groups", 5, groups=("g", "h"), include_authorized_operations=True
    )
    rows = {one.group_id: (one.error_code, one.authorized_operations) for one in answer.groups}
    assert rows == {"g": (ErrorCode.NONE, 1 << DESCRIBE), "h": (DENIED, -(2**31))}
    await acls.allow(DESCRIBE)
    assert await listed() == {"g", "h"}


async def test_deleting_needs_delete(kafka: RawConnection, acls: AclEditor) -> None:
    """30 for a group; for offsets Read on the topic as well."""
    topic = nested("offset_delete", 0, "OffsetDeleteRequestTopic")
    partition = nested("offset_delete", 0, "OffsetDeleteRequestPartition")(partition_index=0)

    async def delete_offsets() -> tuple[int, list[int]]:
        answer = await kafka.call(
            "offset_delete", 0, group_id="g", topics=(topic(name="t", partitions=(partition,)),)
        )
        rows = [int(row.error_code) for one in answer.topics for row in one.partitions]
        return int(answer.error_code), rows

    async def delete() -> int:
        answer = await kafka.call("delete_groups", 2, groups_names=("g",))
        return int(answer.results[0].error_code)

    assert await delete_offsets() == (DENIED, [])
    assert await delete() == DENIED
    await acls.allow(DELETE, "g", resource_type=GROUP)
    assert await delete_offsets() == (0, [ErrorCode.TOPIC_AUTHORIZATION_FAILED])
    assert await delete() == ErrorCode.GROUP_ID_NOT_FOUND


async def test_members_of_the_consumer_protocol_need_read_and_describe(
    kafka: RawConnection, acls: AclEditor
) -> None:
    """30 without Read on the group, 29 without Describe on a topic that is named; others do not match."""
    assert (await beat(kafka, "m", 0)).error_code == DENIED
    await acls.allow(READ, "g", resource_type=GROUP)
    assert (await beat(kafka, "m", 0)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await acls.allow(DESCRIBE, "t")
    values = {"subscribed_topic_regex": ".*", "subscribed_topic_names": ()}
    answer = await beat(kafka, "m", 0, **values)
    (row,) = answer.assignment.topic_partitions
    assert row.partitions == (0,)


async def test_a_consumer_group_is_shown_to_those_who_may_describe_it_and_its_topics(
    kafka: RawConnection, acls: AclEditor
) -> None:
    """30 without Describe on the group; 29 and no members without Describe on a topic of theirs."""
    await acls.allow(READ, "g", resource_type=GROUP)
    await acls.allow(DESCRIBE, "t")
    await beat(kafka, "m", 0)
    (row,) = await describe(kafka)
    assert (row.error_code, len(row.members)) == (ErrorCode.NONE, 1)
    await acls.revoke(DESCRIBE, "t")
    (row,) = await describe(kafka)
    assert (row.error_code, row.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ())
    await acls.revoke(READ, "g", resource_type=GROUP)
    (row,) = await describe(kafka)
    assert (row.error_code, row.members) == (DENIED, ())
