"""Metadata: names and ids of a request; answers packed once, in slices, and right after every change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from echoless.broker.cluster.metadata_rows import PACKED_AT_ONCE
from echoless.broker.config.listener_names import NATIVE
from echoless.broker.handlers import metadata as handler
from echoless.broker.handlers.metadata import describe
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.network.request import Peer
from echoless.broker.network.turns import ROWS_PER_TURN
from echoless.protocol import metadata_response
from echoless.protocol.errors import ErrorCode
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, create_topic, nested, topic_id


async def partitions_of(kafka: RawConnection, version: int = 9) -> dict[str, list[int]]:
    """Topic -> partitions, in an answer about all topics."""
    response: Any = await kafka.call(
        "metadata",
        version,
        topics=None,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return {
        topic.name: [one.partition_index for one in topic.partitions] for topic in response.topics
    }


@pytest.mark.slow
async def test_a_large_topic_is_packed_in_slices_and_once(
    kafka: RawConnection, running: Running, monkeypatch: Any
) -> None:
    """Other requests come in between, and the next client gets the same bytes."""
    broker, count = running.broker, 3 * PACKED_AT_ONCE + 1
    await broker.services.topics.create(NewTopic(name="t", partitions=count))
    packed: list[int] = []
    encode = metadata_response.encode_partitions

    def encode_some(version: int, rows: Any) -> bytes:
        packed.append(len(rows))
        return encode(version, rows)

    monkeypatch.setattr("echoless.broker.cluster.metadata_rows.encode_partitions", encode_some)
    assert await partitions_of(kafka) == {"t": list(range(count))}
    assert packed == [PACKED_AT_ONCE] * 3 + [1]
    assert await partitions_of(kafka) == {"t": list(range(count))}
    assert sum(packed) == count


@pytest.mark.slow
async def test_the_native_port_describes_a_large_topic_in_several_turns(running: Running) -> None:
    """Other requests come in between."""
    services, count = running.broker.services, 3 * ROWS_PER_TURN + 1
    await services.topics.create(NewTopic(name="t", partitions=count))
    answer = describe(
        services,
        None,
        may_create=False,
        peer=Peer(1, "127.0.0.1:5000", listener=NATIVE),
        rights=None,
    )
    assert isinstance(answer, Awaitable)
    described, turns = asyncio.ensure_future(answer), 0
    while not described.done():
        await asyncio.sleep(0)
        turns += 1
    (topic,) = described.result()["topics"]
    assert turns > 3
    assert [row["partition_index"] for row in topic["partitions"]] == list(range(count))


async def test_what_is_kept_is_as_new_as_the_topic(kafka: RawConnection, running: Running) -> None:
    """More partitions, a deletion, and another topic of the same name are visible at once."""
    broker = running.broker
    await broker.services.topics.create(NewTopic(name="t", partitions=2))
    assert await partitions_of(kafka) == {"t": [0, 1]}
    await broker.services.topics.create_partitions("t", 3)
    assert await partitions_of(kafka) == {"t": [0, 1, 2]}
    await broker.services.topics.delete("t")
    assert await partitions_of(kafka) == {}
    await broker.services.topics.create(NewTopic(name="t", partitions=1))
    assert await partitions_of(kafka) == {"t": [0]}


async def test_what_is_kept_is_bounded(running: Running, monkeypatch: Any) -> None:
    """Topics come and go; what is packed of them does not grow for ever."""
    monkeypatch.setattr("echoless.broker.cluster.metadata_rows.KEPT_BYTES_MAX", 200)
    rows = running.broker.services.metadata_rows
    for number in range(9):
        await running.broker.services.topics.create(NewTopic(name=f"t{number}"))
        topic = running.broker.registry.topics[f"t{number}"]
        assert rows.count_missing([topic], 9) == 1
        rows.packed(topic, 9)
        assert rows._kept_bytes <= 200
        assert rows._kept_bytes == sum(len(packed) for _, packed in rows._kept.values())
    assert rows.count_missing([topic], 9) == 0


MENTIONS = 10_000


async def metadata(kafka: RawConnection, *topics: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and code of each row."""
    wanted = tuple(nested("metadata", 12, "MetadataRequestTopic")(**topic) for topic in topics)
    response = await kafka.call(
        "metadata",
        12,
        topics=wanted,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return [(row.name, row.error_code.name) for row in response.topics]


async def test_a_topic_is_described_once_however_often_it_is_named(kafka: RawConnection) -> None:
    """A small request for one large topic must not become an answer that fills the memory."""
    await create_topic(kafka, "t", 1)
    by_name = {"name": "t", "topic_id": None}
    assert await metadata(kafka, *[by_name] * MENTIONS) == [("t", "none")]
    by_id = {"name": None, "topic_id": await topic_id(kafka, "t")}
    assert await metadata(kafka, *[by_id] * MENTIONS) == [("t", "none")]


async def test_an_id_goes_before_a_name(kafka: RawConnection) -> None:
    """A topic that was deleted and made again has the name, but not the id."""
    await create_topic(kafka, "t", 1)
    found = await topic_id(kafka, "t")
    assert await metadata(kafka, {"name": "missing", "topic_id": found}) == [("t", "none")]


@pytest.mark.parametrize("version", [10, 11])
async def test_metadata_before_12_takes_names_only(kafka: RawConnection, version: int) -> None:
    """42 for every topic of the request, as Kafka answers; a null name comes back empty."""
    await create_topic(kafka, "known", 1)
    row = nested("metadata", version, "MetadataRequestTopic")
    known = row(topic_id=None, name="known")
    by_id = row(topic_id=await topic_id(kafka, "known"), name="known")
    for wanted in ([row(topic_id=None, name=None), known], [known, by_id]):
        operations = {"include_topic_authorized_operations": False}
        if version == 10:
            operations["include_cluster_authorized_operations"] = False
        response = await kafka.call(
            "metadata",
            version,
            topics=tuple(wanted),
            allow_auto_topic_creation=True,
            **operations,
        )
        assert [one.name for one in response.topics] == [one.name or "" for one in wanted]
        assert {one.error_code for one in response.topics} == {ErrorCode.INVALID_REQUEST}


async def test_a_request_creates_some_topics_and_the_client_asks_for_the_others_again(
    kafka: RawConnection, running: Running, monkeypatch: Any
) -> None:
    """Code 5, with which Kafka answers for each topic that it begins to create."""
    monkeypatch.setattr(handler, "CREATED_MAX", 2)
    topic = nested("metadata", 9, "MetadataRequestTopic")
    codes: list[list[int]] = []
    for _ in range(2):
        answer = await kafka.call(
            "metadata",
            9,
            topics=tuple(topic(name=name) for name in ("a", "b", "c")),
            allow_auto_topic_creation=True,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        codes.append([one.error_code for one in answer.topics])
    assert codes == [[0, 0, ErrorCode.LEADER_NOT_AVAILABLE], [0, 0, 0]]
    assert set(running.broker.registry.topics) == {"a", "b", "c"}
