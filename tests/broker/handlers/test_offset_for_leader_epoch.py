"""OffsetForLeaderEpoch, over a real socket: where epochs ended, and clients of other epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_producer import produce
from tests.support.in_process import in_process
from tests.support.raw_client import (
    RawConnection,
    create_topic,
    nested,
)

pytestmark = pytest.mark.usefixtures("ten_records")


async def epoch_end(kafka: RawConnection, leader_epoch: int, current: int = -1) -> Any:
    api = "offset_for_leader_epoch"
    row = nested(api, 4, "OffsetForLeaderPartition")(
        partition=0, current_leader_epoch=current, leader_epoch=leader_epoch
    )
    topic = nested(api, 4, "OffsetForLeaderTopic")(topic="t", partitions=(row,))
    response = await kafka.call(api, 4, replica_id=-2, topics=(topic,))
    return response.topics[0].partitions[0]


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
