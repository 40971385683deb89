"""`__consumer_offsets` belongs to its coordinators: clients read it, and that is all."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from echoless.broker.config.description import AlterOperation
from echoless.broker.config.internal_topics import CONSUMER_OFFSETS
from echoless.broker.handlers import metadata
from echoless.broker.handlers.config_resource import ConfigResourceType
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.network.loop_turn import LOOP_TURN
from echoless.broker.network.request import Peer
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.metadata_request import WantedTopic
from tests.support.in_process import Running
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, create_topic, nested
from tests.support.raw_produce import PartitionData

NO_TIME = datetime.timedelta(0)


async def test_it_is_made_once_however_many_ask(running: Running) -> None:
    """With the partitions of the configuration, and nothing of it is deleted by age or size."""
    topic = running.broker.groups.topic
    assert await asyncio.gather(*(topic.until_created() for _ in range(5))) == [8] * 5
    made = running.broker.registry.topics[CONSUMER_OFFSETS]
    assert made.partition_count == 8
    log = running.broker.partitions[CONSUMER_OFFSETS, 0].log
    assert (log.config.retention_ms, log.config.retention_bytes) == (-1, -1)


async def test_metadata_marks_it(
    running: Running, kafka: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that subscribes by a pattern leaves it out; on the native port, too."""
    monkeypatch.setattr(LOOP_TURN, "clock", lambda: 0.0)  # a slow machine ends no turn
    await create_topic(kafka, "t", 1)
    await running.broker.groups.topic.until_created()
    for version in (1, 9, 12):
        fields = {"include_topic_authorized_operations": False} if version >= 8 else {}
        if version == 9:
            fields["include_cluster_authorized_operations"] = False
        answer = await kafka.call(
            "metadata",
            version,
            topics=None,
            **({"allow_auto_topic_creation": False} if version >= 4 else {}),
            **fields,
        )
        assert {one.name: one.is_internal for one in answer.topics} == {
            "t": False,
            CONSUMER_OFFSETS: True,
        }
    described = metadata.describe(
        running.broker.services,
        [WantedTopic(CONSUMER_OFFSETS)],
        may_create=False,
        peer=Peer(1, "127.0.0.1:5000"),
        rights=None,
    )
    assert isinstance(described, dict)
    assert [one["is_internal"] for one in described["topics"]] == [True]


async def test_a_client_that_asks_for_its_metadata_has_it_made(
    running: Running, kafka: RawConnection
) -> None:
    """With its own number of partitions, not that of other topics."""
    answer = await kafka.call(
        "metadata",
        4,
        topics=(nested("metadata", 4, "MetadataRequestTopic")(name=CONSUMER_OFFSETS),),
        allow_auto_topic_creation=True,
    )
    assert len(answer.topics[0].partitions) == 8
    assert running.broker.groups.topic.partition_count == 8


async def test_no_client_produces_to_it(running: Running, kafka: RawConnection) -> None:
    """INVALID_TOPIC_EXCEPTION, with or without a producer id; nothing is stored."""
    await running.broker.groups.topic.until_created()
    batch = plain_batch([b"value"]).encode()
    (row,) = await kafka.produce(9, -1, [PartitionData(CONSUMER_OFFSETS, 0, batch)])
    assert row.error == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert running.broker.partitions[CONSUMER_OFFSETS, 0].log.log_end_offset == 0


async def test_no_client_deletes_or_extends_it(running: Running, kafka: RawConnection) -> None:
    """17 and 37: groups would be looked for where they are not. DeleteRecords gets 44."""
    await running.broker.groups.topic.until_created()
    topics = running.broker.services.topics
    with pytest.raises(KafkaError, match="cannot be deleted") as refused:
        await topics.delete(CONSUMER_OFFSETS)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(KafkaError, match="cannot change") as refused:
        await topics.create_partitions(CONSUMER_OFFSETS, 9)
    assert refused.value.code is ErrorCode.INVALID_PARTITIONS
    partition = nested("delete_records", 1, "DeleteRecordsPartition")(partition_index=0, offset=0)
    topic = nested("delete_records", 1, "DeleteRecordsTopic")
    answer = await kafka.call(
        "delete_records",
        1,
        topics=(topic(name=CONSUMER_OFFSETS, partitions=(partition,)),),
        timeout=NO_TIME,
    )
    (row,) = answer.topics[0].partitions
    assert row.error_code == ErrorCode.POLICY_VIOLATION


async def test_one_that_a_client_creates_keeps_its_records_too(running: Running) -> None:
    """As a tool does that copies topics; its own settings come first."""
    await running.broker.services.topics.create(
        NewTopic(name=CONSUMER_OFFSETS, partitions=3, config={"segment.bytes": "4096"})
    )
    log = running.broker.partitions[CONSUMER_OFFSETS, 0].log
    assert (log.config.retention_ms, log.config.segment_bytes) == (-1, 4096)
    assert await running.broker.groups.topic.until_created() == 3


RETENTION = [("retention.ms", "1000"), ("retention.bytes", "1")]


@pytest.mark.parametrize(("name", "value"), RETENTION)
async def test_no_client_lets_its_records_expire(
    running: Running, kafka: RawConnection, name: str, value: str
) -> None:
    """40, however it is tried: groups would lose offsets that were committed."""
    assert (await created(kafka, name, value)).error_code == ErrorCode.INVALID_CONFIG
    assert CONSUMER_OFFSETS not in running.broker.registry.topics
    await running.broker.groups.topic.until_created()
    for api in ("alter_configs", "incremental_alter_configs"):
        row = await configured(kafka, api, name, value)
        assert row.error_code == ErrorCode.INVALID_CONFIG
        assert f"{name} of {CONSUMER_OFFSETS} is always -1" in row.error_message
    assert running.broker.registry.topics[CONSUMER_OFFSETS].config[name] == "-1"


async def test_other_settings_of_it_can_be_changed(running: Running, kafka: RawConnection) -> None:
    """Its retention is -1 even where a replacement of all settings leaves it out, and is shown so."""
    await running.broker.groups.topic.until_created()
    for api in ("incremental_alter_configs", "alter_configs"):
        for name, value in (("retention.ms", "-1"), ("segment.bytes", "4096")):
            assert (await configured(kafka, api, name, value)).error_code == 0
    log = running.broker.partitions[CONSUMER_OFFSETS, 0].log
    assert (log.config.retention_ms, log.config.retention_bytes) == (-1, -1)
    assert log.config.segment_bytes == 4096
    resource = nested("describe_configs", 4, "DescribeConfigsResource")(
        resource_type=ConfigResourceType.TOPIC,
        resource_name=CONSUMER_OFFSETS,
        configuration_keys=("retention.bytes", "retention.ms"),
    )
    answer = await kafka.call(
        "describe_configs",
        4,
        resources=(resource,),
        include_synonyms=False,
        include_documentation=False,
    )
    assert [one.value for one in answer.results[0].configs] == ["-1", "-1"]


@pytest.mark.parametrize(("name", "value"), RETENTION)
async def test_a_stored_retention_of_it_is_not_applied(
    running: Running, name: str, value: str
) -> None:
    """An earlier version, or a tool that writes to ZooKeeper, may have stored one."""
    await running.broker.groups.topic.until_created()
    await running.broker.registry.set_topic_config(CONSUMER_OFFSETS, {name: value})
    log = running.broker.partitions[CONSUMER_OFFSETS, 0].log
    assert (log.config.retention_ms, log.config.retention_bytes) == (-1, -1)


async def created(kafka: RawConnection, name: str, value: str) -> Any:
    """The row of CreateTopics for the internal topic with one setting."""
    topic = nested("create_topics", 5, "CreatableTopic")(
        name=CONSUMER_OFFSETS,
        num_partitions=1,
        replication_factor=1,
        assignments=(),
        configs=(nested("create_topics", 5, "CreatableTopicConfig")(name=name, value=value),),
    )
    answer = await kafka.call(
        "create_topics",
        5,
        topics=(topic,),
        timeout=datetime.timedelta(seconds=10),
        validate_only=False,
    )
    return answer.topics[0]


async def configured(kafka: RawConnection, api: str, name: str, value: str) -> Any:
    """The row of one of the requests that change a topic's settings."""
    version = 2 if api == "alter_configs" else 1
    operation = {} if api == "alter_configs" else {"config_operation": AlterOperation.SET}
    resource = nested(api, version, "AlterConfigsResource")(
        resource_type=ConfigResourceType.TOPIC,
        resource_name=CONSUMER_OFFSETS,
        configs=(nested(api, version, "AlterableConfig")(name=name, value=value, **operation),),
    )
    answer = await kafka.call(api, version, resources=(resource,), validate_only=False)
    return answer.responses[0]
