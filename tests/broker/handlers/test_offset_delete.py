"""OffsetDelete: positions in topics that no member subscribes to."""

from __future__ import annotations

from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_group import alone, commit, committed, created
from tests.support.raw_client import RawConnection, create_topic, nested


async def delete(
    kafka: RawConnection, *partitions: tuple[str, int], group: str = "g"
) -> tuple[ErrorCode, list[tuple[str, int, ErrorCode]]]:
    """The code on top, and the rows."""
    topic_class = nested("offset_delete", 0, "OffsetDeleteRequestTopic")
    partition_class = nested("offset_delete", 0, "OffsetDeleteRequestPartition")
    topics = tuple(
        topic_class(name=name, partitions=(partition_class(partition_index=index),))
        for name, index in partitions
    )
    answer = await kafka.call("offset_delete", 0, group_id=group, topics=topics)
    rows = [
        (topic.name, row.partition_index, ErrorCode(row.error_code))
        for topic in answer.topics
        for row in topic.partitions
    ]
    return ErrorCode(answer.error_code), rows


async def test_offsets_of_a_topic_without_subscribers_go(kafka: RawConnection) -> None:
    """86 for the topic `t`, to which a member subscribes; 3 for one that does not exist; 0 twice."""
    await create_topic(kafka, "t", 1)
    await create_topic(kafka, "u", 1)
    await created(kafka)
    generation, member_id = await alone(kafka)
    await commit(kafka, {("t", 0): 1, ("u", 0): 2}, generation=generation, member_id=member_id)
    expected = [
        ("t", 0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        ("u", 0, ErrorCode.NONE),
        ("no", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    for _ in range(2):
        assert await delete(kafka, ("t", 0), ("u", 0), ("no", 0)) == (ErrorCode.NONE, expected)
    assert await committed(kafka, None) == [("t", 0, 1, "note", ErrorCode.NONE)]


async def test_an_unknown_group_is_an_error_on_top(kafka: RawConnection) -> None:
    await create_topic(kafka, "t", 1)
    await created(kafka)
    assert await delete(kafka, ("t", 0)) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    assert await delete(kafka, ("t", 0), group="") == (ErrorCode.INVALID_GROUP_ID, [])
