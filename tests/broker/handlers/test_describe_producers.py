"""DeleteRecords, OffsetForLeaderEpoch, DescribeProducers and DescribeCluster, over a real socket."""

from __future__ import annotations

import datetime
import threading
from pathlib import Path
from typing import Any

import pytest

from broker.handlers import describe_producers
from broker.handlers.describe_producers import PRODUCERS_AT_ONCE, REPEATED_PRODUCERS_MAX
from protocol.dedup import BatchMetadata, ProducerEntry
from protocol.errors import ErrorCode
from tests.support.in_process import Running, in_process
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import (
    RawConnection,
    create_topic,
    describe_producers_request,
    list_offset,
    nested,
    producer_rows,
)
from tests.support.raw_produce import PartitionData

EARLIEST = -2
TIMEOUT = datetime.timedelta(seconds=5)


async def produce(kafka: RawConnection, count: int, producer_id: int = 7) -> None:
    """Appends `count` batches of one record to t-0."""
    for sequence in range(count):
        batch = plain_batch(
            [b"v"], producer_id=producer_id, producer_epoch=0, base_sequence=sequence
        )
        (answer,) = await kafka.produce(9, -1, [PartitionData("t", 0, batch.encode())])
        assert answer.error == 0


@pytest.fixture(autouse=True)
async def _topic(kafka: RawConnection) -> None:
    """A topic `t` of one partition that holds ten records of producer 7."""
    await create_topic(kafka, "t", 1)
    await produce(kafka, 10)


async def delete(kafka: RawConnection, offset: int, partition: int = 0, topic: str = "t") -> Any:
    row = nested("delete_records", 2, "DeleteRecordsPartition")(
        partition_index=partition, offset=offset
    )
    response = await kafka.call(
        "delete_records",
        2,
        topics=(nested("delete_records", 2, "DeleteRecordsTopic")(name=topic, partitions=(row,)),),
        timeout=TIMEOUT,
    )
    return response.topics[0].partitions[0]


async def epoch_end(kafka: RawConnection, leader_epoch: int, current: int = -1) -> Any:
    api = "offset_for_leader_epoch"
    row = nested(api, 4, "OffsetForLeaderPartition")(
        partition=0, current_leader_epoch=current, leader_epoch=leader_epoch
    )
    topic = nested(api, 4, "OffsetForLeaderTopic")(topic="t", partitions=(row,))
    response = await kafka.call(api, 4, replica_id=-2, topics=(topic,))
    return response.topics[0].partitions[0]


async def test_records_below_an_offset_go(kafka: RawConnection) -> None:
    """The low watermark is the log's new start; an older offset changes nothing more."""
    row = await delete(kafka, 4)
    assert (row.error_code, row.low_watermark) == (0, 4)
    assert await list_offset(kafka, "t", 0, EARLIEST) == 4
    row = await delete(kafka, 2)
    assert (row.error_code, row.low_watermark) == (0, 4)


async def test_minus_one_deletes_up_to_the_high_watermark(kafka: RawConnection) -> None:
    """No record is left to read, and the next offset is unchanged."""
    row = await delete(kafka, -1)
    assert (row.error_code, row.low_watermark) == (0, 10)
    assert await list_offset(kafka, "t", 0) == 10


async def test_deleting_records_forgets_no_producer(kafka: RawConnection) -> None:
    """A retry of a deleted batch is still a repeat, and the next sequence still follows."""
    await delete(kafka, -1)
    for sequence, offset in ((9, 9), (10, 10)):
        batch = plain_batch([b"v"], producer_id=7, producer_epoch=0, base_sequence=sequence)
        (answer,) = await kafka.produce(9, -1, [PartitionData("t", 0, batch.encode())])
        assert (answer.error, answer.base_offset, answer.log_start_offset) == (0, offset, 10)


async def test_records_that_cannot_be_deleted(kafka: RawConnection) -> None:
    """Beyond the high watermark, below zero, and partitions that are not there."""
    for row, code in (
        (await delete(kafka, 11), ErrorCode.OFFSET_OUT_OF_RANGE),
        (await delete(kafka, -2), ErrorCode.OFFSET_OUT_OF_RANGE),
        (await delete(kafka, 1, partition=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (await delete(kafka, 1, topic="missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        assert (row.error_code, row.low_watermark) == (code, -1)
    assert await list_offset(kafka, "t", 0, EARLIEST) == 0


async def test_the_present_epoch_ends_where_the_log_does(kafka: RawConnection) -> None:
    """An epoch that has not begun is unknown: -1 and -1."""
    row = await epoch_end(kafka, 0)
    assert (row.error_code, row.leader_epoch, row.end_offset) == (0, 0, 10)
    row = await epoch_end(kafka, 5)
    assert (row.error_code, row.leader_epoch, row.end_offset) == (0, -1, -1)


async def test_clients_of_another_epoch_are_told(kafka: RawConnection) -> None:
    """A newer epoch than the leader's is unknown, an older one is fenced."""
    assert (await epoch_end(kafka, 0, current=0)).error_code == 0
    unknown = await epoch_end(kafka, 0, current=1)
    assert unknown.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_an_earlier_epoch_ended_where_the_next_began(tmp_path: Path) -> None:
    """Each start of the broker is a new leader epoch."""
    for epoch in range(2):
        async with in_process(tmp_path / "restarted") as running:
            kafka = await RawConnection.open(running.kafka_address)
            if epoch == 0:
                await create_topic(kafka, "t", 1)
            await produce(kafka, 3, producer_id=epoch)
            row = await epoch_end(kafka, 0, current=epoch)
            assert (row.error_code, row.leader_epoch, row.end_offset) == (0, 0, 3)
            if epoch == 1:
                fenced = await epoch_end(kafka, 0, current=0)
                assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
            await kafka.close()


async def test_producers_are_described(kafka: RawConnection) -> None:
    """Every producer with its epoch and last sequence; one row for each index asked for."""
    await produce(kafka, 2, producer_id=3)
    kafka.send_request(describe_producers_request("t", [0, 0, 5]))
    response = await kafka.receive_response("describe_producers", 0)
    rows = response.topics[0].partitions
    assert [(row.partition_index, row.error_code) for row in rows] == [
        (0, ErrorCode.NONE),
        (0, ErrorCode.NONE),
        (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert [tuple(row) for row in producer_rows(rows[0])] == [
        (3, 0, 1, 1, -1, -1),
        (7, 0, 9, 1, -1, -1),
    ]


async def test_many_producers_are_encoded_beside_the_loop(
    kafka: RawConnection, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are encoded as of the row's creation, whatever is appended meanwhile.

    A million would take seconds.
    """
    states = running.broker.partitions["t", 0].log.producers
    newest = BatchMetadata(5, 0, 5, 1, 7)
    ids = range(1000, 1000 + PRODUCERS_AT_ONCE)
    for producer_id in ids:
        states.put(producer_id, ProducerEntry(0, 0, 1, (newest,)))
    threads = []
    encode = describe_producers.encode_describe_producers_response

    def noted(topics: Any) -> bytes:
        threads.append(threading.get_ident())
        states.put(1000, ProducerEntry(3, 0, 1, (newest,)))
        return encode(topics)

    monkeypatch.setattr(describe_producers, "encode_describe_producers_response", noted)
    kafka.send_request(describe_producers_request("t", [0, 5]))
    response = await kafka.receive_response("describe_producers", 0)
    row, missing = response.topics[0].partitions
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {told.producer_id: told.producer_epoch for told in row.active_producers} == {
        7: 0,
        **dict.fromkeys(ids, 0),
    }
    assert threads != [threading.get_ident()]


async def test_producers_of_no_topic(kafka: RawConnection) -> None:
    """A name that is invalid for a topic is distinguished from one that does not exist."""
    for name, code in (
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ):
        kafka.send_request(describe_producers_request(name, [0]))
        response = await kafka.receive_response("describe_producers", 0)
        assert response.topics[0].partitions[0].error_code == code


async def test_a_partition_is_not_described_any_number_of_times(kafka: RawConnection) -> None:
    """A few bytes of request must not make an answer of any size; the first row is always whole."""
    repeats = REPEATED_PRODUCERS_MAX + 1
    kafka.send_request(describe_producers_request("t", [0] * (1 + repeats)))
    response = await kafka.receive_response("describe_producers", 0)
    first, *others = response.topics[0].partitions
    assert len(first.active_producers) == 1
    assert [row.error_code for row in others] == [
        *[ErrorCode.NONE] * (repeats - 1),
        ErrorCode.INVALID_REQUEST,
    ]


async def test_the_cluster_is_described(kafka: RawConnection, running: Running) -> None:
    """Id, controller and brokers; a client that looks for a controller port gets a helpful error."""
    fields = {"include_cluster_authorized_operations": False}
    response = await kafka.call("describe_cluster", 1, **fields, endpoint_type=1)
    assert (response.error_code, response.cluster_id) == (0, running.broker.cluster_id)
    (broker,) = response.brokers
    assert f"{broker.host}:{broker.port}" == running.kafka_address
    assert response.controller_id == broker.broker_id
    for endpoint_type, code in (
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ):
        response = await kafka.call("describe_cluster", 1, **fields, endpoint_type=endpoint_type)
        assert (response.error_code, response.brokers) == (code, ())
