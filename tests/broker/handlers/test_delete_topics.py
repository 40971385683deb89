"""DeleteTopics, over a real socket: by name or by id, each topic on its own."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.test_create_topics import create, wanted
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, nested

TIMEOUT = datetime.timedelta(seconds=5)


async def delete(kafka: RawConnection, *topics: dict[str, Any]) -> list[Any]:
    """Deletes by `name` and `topic_id`."""
    rows = tuple(
        nested("delete_topics", 6, "DeleteTopicState")(**{"name": None, "topic_id": None, **topic})
        for topic in topics
    )
    response = await kafka.call("delete_topics", 6, topics=rows, timeout=TIMEOUT)
    return list(response.responses)


async def test_topics_are_deleted_by_name_or_id(kafka: RawConnection, running: Running) -> None:
    """A deleted topic takes its partitions and files along; its name may be used again."""
    created = await create(kafka, wanted("by-name"), wanted("by-id"))
    by_id = created[1].topic_id
    topics = list(running.broker.registry.topics.values())
    rows = await delete(kafka, {"name": "by-name"}, {"topic_id": by_id})
    assert [(row.name, row.error_code) for row in rows] == [("by-name", 0), ("by-id", 0)]
    assert rows[1].topic_id == by_id
    for topic in topics:
        await running.broker.services.partitions.until_removed(topic)
    assert not running.broker.partitions
    assert not running.broker.logs.logs
    (again,) = await create(kafka, wanted("by-name"))
    assert again.error_code == 0


async def test_what_cannot_be_deleted_is_told_why(kafka: RawConnection, running: Running) -> None:
    """Unknown names and ids, neither, both, and a topic that is named twice in two ways."""
    created = await create(kafka, wanted("t"), wanted("u"))
    by_id = created[0].topic_id
    stranger = uuid.UUID(int=5)
    rows = await delete(
        kafka,
        {"name": "missing"},
        {"topic_id": stranger},
        {},
        {"name": "u", "topic_id": created[1].topic_id},
        {"name": "t"},
        {"topic_id": by_id},
    )
    assert [row.error_code for row in rows] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        *(ErrorCode.INVALID_REQUEST,) * 4,
    ]
    assert sorted(running.broker.registry.topics) == ["t", "u"]


async def test_names_alone_are_deleted_in_old_versions(kafka: RawConnection) -> None:
    """Before version 6 topics have only names."""
    await create(kafka, wanted("t"))
    response = await kafka.call("delete_topics", 1, topic_names=("t", "missing"), timeout=TIMEOUT)
    assert [(row.name, row.error_code) for row in response.responses] == [
        ("t", ErrorCode.NONE),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
