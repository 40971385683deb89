"""Batches that an older version stored, or a replica: reading them harms no one."""

from __future__ import annotations

import pytest

from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import Codec, read_header
from tests.hostile.bombs import batch_of, empty_records, tiny_records
from tests.support.in_process import Running
from tests.support.native_client import NativeConnection
from tests.support.raw_client import RawConnection, create_topic, nested

RECORDS = 3000
"""More than are read on the loop."""


@pytest.fixture
async def stored(kafka: RawConnection, running: Running) -> None:
    """A partition with an honest batch, and one of a hundred million records of no length after it."""
    await create_topic(kafka, "t", 1)
    partition = running.broker.services.partitions.find("t", 0)
    for batch in (
        tiny_records(RECORDS, Codec.ZSTD),
        empty_records(Codec.ZSTD, 1000, claimed=100_000_000),
    ):
        partition.append(batch, read_header(batch), running.broker.clock.wall_ms())


@pytest.mark.usefixtures("stored")
async def test_a_time_in_a_batch_that_cannot_be_opened_is_corrupt(kafka: RawConnection) -> None:
    """2 for that partition; a record before the batch is found."""
    row = nested("list_offsets", 7, "ListOffsetsPartition")
    topic = nested("list_offsets", 7, "ListOffsetsTopic")
    found = {}
    for timestamp in (0, -3):
        rows = (row(partition_index=0, timestamp=timestamp, current_leader_epoch=-1),)
        response = await kafka.call(
            "list_offsets",
            7,
            replica_id=-1,
            isolation_level=0,
            topics=(topic(name="t", partitions=rows),),
        )
        (answer,) = response.topics[0].partitions
        found[timestamp] = (answer.error_code, answer.offset)
    assert found == {0: (ErrorCode.NONE, 0), -3: (ErrorCode.NONE, 0)}


@pytest.mark.usefixtures("stored")
async def test_its_records_cannot_be_shown(native: NativeConnection) -> None:
    """The honest batch is shown; the other is refused with a reason, and may be fetched raw."""
    message = {"topic": "t", "partition": 0, "max_wait_ms": 0}
    answer = await native.call("fetch", **message, offset=0)
    assert (len(answer["records"]), answer["next_offset"]) == (RECORDS, RECORDS)
    answer = await native.call("fetch", **message, offset=RECORDS)
    assert answer["error"]["code"] == ErrorCode.CORRUPT_MESSAGE
    answer = await native.call("fetch", **message, offset=RECORDS, raw=True)
    assert answer["error"]["code"] == 0


async def test_offsets_that_stand_still_end_in_an_error(
    kafka: RawConnection, running: Running, native: NativeConnection
) -> None:
    """A reader that continues after the last record it was shown would make no progress."""
    await create_topic(kafka, "t", 1)
    partition = running.broker.services.partitions.find("t", 0)
    batch = batch_of(b"\x0c\0\0\0\1\1\0" * RECORDS, RECORDS, Codec.ZSTD)
    partition.append(batch, read_header(batch), running.broker.clock.wall_ms())
    message = {"topic": "t", "partition": 0, "max_wait_ms": 0}
    answer = await native.call("fetch", **message, offset=0)
    assert (len(answer["records"]), answer["next_offset"]) == (1, 1)
    answer = await native.call("fetch", **message, offset=1)
    assert answer["error"]["code"] == ErrorCode.CORRUPT_MESSAGE
