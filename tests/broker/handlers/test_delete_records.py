"""DeleteRecords, over a real socket: the log start moves, and producer state stays."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from echoless.protocol.errors import ErrorCode
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import (
    RawConnection,
    list_offset,
    nested,
)
from tests.support.raw_produce import PartitionData

EARLIEST = -2
TIMEOUT = datetime.timedelta(seconds=5)

pytestmark = pytest.mark.usefixtures("ten_records")


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
