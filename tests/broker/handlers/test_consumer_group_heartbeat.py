"""ConsumerGroupHeartbeat: members of a group of the consumer protocol, as the wire has them."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from echoless.broker.groups.cluster_topics import ClusterTopics
from echoless.broker.handlers.consumer_group_heartbeat import API
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_group import (
    after_a_commit,
    alone,
    call,
    commit,
    committed,
    created,
    join,
)
from tests.support.raw_client import RawConnection, create_topic, nested

VERSIONS = range(API.version_min, API.version_max + 1)
GROUP = "g"


async def beat(
    kafka: RawConnection, member_id: str, epoch: int, version: int = 1, **values: Any
) -> Any:
    """The answer to a heartbeat; one with epoch 0 subscribes to topic t."""
    given = beat_values(member_id, epoch)
    return await call(kafka, "consumer_group_heartbeat", version, **{**given, **values})


def beat_values(member_id: str, epoch: int) -> dict[str, Any]:
    joins = epoch == 0
    return {
        "group_id": GROUP,
        "member_id": member_id,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": datetime.timedelta(seconds=30 if joins else -0.001),
        "subscribed_topic_names": ("t",) if joins else None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": () if joins else None,
    }


def assigned(answer: Any) -> list[int]:
    """The partitions of the only topic."""
    topics = answer.assignment.topic_partitions
    return list(topics[0].partitions) if topics else []


def owned(version: int, topic_id: Any, *partitions: int) -> tuple[Any, ...]:
    cls = nested("consumer_group_heartbeat", version, "TopicPartitions")
    return (cls(topic_id=topic_id, partitions=partitions),)


@pytest.mark.parametrize("version", VERSIONS)
async def test_two_members_share_a_topic(kafka: RawConnection, version: int) -> None:
    """The second one is given what the first one has given up; each learns only what has changed."""
    await create_topic(kafka, "t", 4)
    await created(kafka)
    first = await beat(kafka, "m1", 0, version)
    assert (first.error_code, first.member_id, first.member_epoch) == (0, "m1", 1)
    assert assigned(first) == [0, 1, 2, 3]
    assert first.heartbeat_interval == datetime.timedelta(seconds=5)
    second = await beat(kafka, "m2", 0, version)
    assert (second.member_epoch, assigned(second)) == (2, [])
    topic_id = first.assignment.topic_partitions[0].topic_id
    first = await beat(
        kafka, "m1", 1, version, topic_partitions=owned(version, topic_id, *range(4))
    )
    assert assigned(first) == [0, 1]
    await beat(kafka, "m1", 1, version, topic_partitions=owned(version, topic_id, 0, 1))
    second = await beat(kafka, "m2", 2, version)
    assert assigned(second) == [2, 3]
    assert (await beat(kafka, "m2", 2, version)).assignment is None
    assert (await beat(kafka, "m2", -1, version)).member_epoch == -1
    assert (await beat(kafka, "m2", 2, version)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_member_that_leaves_does_not_overtake_its_commit(kafka: RawConnection) -> None:
    """It is no longer one when it may not commit any more."""
    await create_topic(kafka, "t", 1)
    await created(kafka)
    joined = await beat(kafka, "m1", 0)
    leaving = beat_values("m1", -1)
    left = await after_a_commit(
        kafka,
        "consumer_group_heartbeat",
        1,
        leaving,
        generation=joined.member_epoch,
        member_id="m1",
    )
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)
    assert await committed(kafka, {"t": (0,)}) == [("t", 0, 10, "note", ErrorCode.NONE)]


async def test_version_0_is_given_an_id(kafka: RawConnection) -> None:
    """From version 1 on the client makes it."""
    await created(kafka)
    answer = await beat(kafka, "", 0, 0)
    assert (answer.error_code, answer.member_epoch) == (0, 1)
    assert len(answer.member_id) == 36
    answer = await beat(kafka, "", 0, 1)
    assert (answer.error_code, answer.error_message) == (42, "MemberId can't be empty.")


async def test_topics_are_subscribed_to_by_regular_expression(kafka: RawConnection) -> None:
    """Whole names, in RE2's syntax; internal topics never match, and a topic may be created later."""
    for name in ("t-a", "t-b", "xt-c", "u"):
        await create_topic(kafka, name, 1)
    await created(kafka)
    values = {"subscribed_topic_names": ("u",), "subscribed_topic_regex": r"t-\pL|__.*"}
    answer = await beat(kafka, "m1", 0, **values)
    assert len(answer.assignment.topic_partitions) == 3
    answer = await beat(kafka, "m1", 1, subscribed_topic_regex="")
    assert len(answer.assignment.topic_partitions) == 1


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", "(a{500}){500}", "a" * 1025])
async def test_expressions_that_re2_does_not_know_are_refused(
    kafka: RawConnection, pattern: str
) -> None:
    """Vector 61: 128 with the reason, for look-around, back-references and what takes too much memory, too."""
    await created(kafka)
    answer = await beat(kafka, "m1", 0, subscribed_topic_regex=pattern)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.error_message


async def test_no_expression_takes_long_on_any_name() -> None:
    """One that takes Python's engine minutes is matched with ten thousand names of the longest kind."""
    names = {f"{'a' * 240}{number:06}!": object() for number in range(10_000)}
    topics: Any = ClusterTopics(names)  # type: ignore[arg-type]  # only their names are looked at
    assert await topics.matching("(a+)+$", "127.0.0.1", None) == ((), 1)
    found, _ = await topics.matching("(a+)+0+7!", "127.0.0.1", lambda name: name.endswith("7!"))
    assert len(found) == 1


async def test_the_protocols_do_not_mix(kafka: RawConnection) -> None:
    """69 with the reason, 23; an empty group changes its type."""
    await create_topic(kafka, "t", 1)
    await created(kafka)
    _, member_id = await alone(kafka)
    answer = await beat(kafka, "m1", 0)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "classic" in answer.error_message
    leaving = nested("leave_group", 5, "MemberIdentity")(member_id=member_id)
    await call(kafka, "leave_group", 5, group_id=GROUP, members=(leaving,))
    epoch = (await beat(kafka, "m1", 0)).member_epoch
    assert (await join(kafka)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert await commit(kafka, {("t", 0): 3}, generation=epoch, member_id="m1") == [("t", 0, 0)]
    stale = await commit(kafka, {("t", 0): 3}, generation=epoch + 1, member_id="m1")
    assert stale == [("t", 0, ErrorCode.STALE_MEMBER_EPOCH)]
    await beat(kafka, "m1", -1)
    assert (await join(kafka)).error_code == ErrorCode.NONE
