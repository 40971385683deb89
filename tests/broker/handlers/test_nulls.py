"""Null and zero where a handler might take them for a name or an id."""

from __future__ import annotations

import datetime

import pytest

from protocol.errors import ErrorCode
from tests.support.in_process import Running
from tests.support.native_client import NativeConnection
from tests.support.raw_client import RawConnection, create_topic, nested, topic_id


@pytest.mark.parametrize("version", range(13, 18))
async def test_fetch_of_a_topic_id_of_zeros_is_an_unknown_topic_id(
    kafka: RawConnection, version: int
) -> None:
    """100 for each partition, as Kafka answers; it once ended the broker."""
    partition = nested("fetch", version, "FetchPartition")(
        partition=0, fetch_offset=0, partition_max_bytes=1000
    )
    topic = nested("fetch", version, "FetchTopic")(topic_id=None, partitions=(partition,) * 2)
    response = await kafka.call(
        "fetch",
        version,
        max_wait=datetime.timedelta(seconds=5),
        min_bytes=1,
        topics=(topic,),
        forgotten_topics_data=(),
    )
    (row,) = response.responses
    assert row.topic_id is None
    assert [one.error_code for one in row.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID] * 2


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


async def test_a_replica_fetch_that_names_the_leader_is_refused(
    kafka: RawConnection, running: Running
) -> None:
    """A leader cannot follow itself; the connection stays open."""
    await create_topic(kafka, "led", 1)
    partition = running.broker.services.partitions.find("led", 0)
    broker_id = running.broker.config.broker_id
    native = await NativeConnection.open(running.native_address)
    wanted = {
        "topic": "led",
        "topic_id": partition.topic_id.bytes,
        "partition": 0,
        "leader_epoch": partition.leader_epoch,
        "offset": 0,
        "last_epoch": -1,
    }
    registered = running.broker.membership.registered_epoch(broker_id)
    for broker_epoch in (registered, 0):
        answer = await native.call(
            "replica_fetch",
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            max_wait_ms=0,
            partitions=[wanted],
        )
        assert answer["partitions"][0]["error"] == ErrorCode.REPLICA_NOT_AVAILABLE
    await native.close()
