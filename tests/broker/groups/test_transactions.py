"""Offsets in transactions on the partitions that a broker coordinates: what a marker's answer waits for, and what a load finds."""

from __future__ import annotations

import asyncio
from typing import Any

from echoless.coordinators.groups.requests import CommittedPartition, TransactionalOffsetCommit
from echoless.protocol.control_records import EndMarker, MarkerType, build_marker
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import read_header
from echoless.storage.appended import Appended
from tests.broker.groups.test_service import Coordinating, group_of, one
from tests.broker.until import until
from tests.storage.one_log import NOW_MS

__all__ = ["one"]


async def commit(one: Coordinating, group_id: str, offset: int) -> ErrorCode:
    """Commits an offset of t-0 in the transaction of producer 7."""
    partitions = (CommittedPartition("t", 0, offset),)
    answer: Any = await one.ask(TransactionalOffsetCommit(group_id, 7, 0, partitions))
    return answer.error_codes[0]


def mark(one: Coordinating, index: int, kind: MarkerType = MarkerType.COMMIT) -> int:
    """Stores the producer's marker; returns the offset after it."""
    partition = one.led[index].partition
    batch = build_marker(EndMarker(kind, 0), 7, 0, NOW_MS)
    result = partition.append_for_coordinator(batch, read_header(batch), NOW_MS)
    assert isinstance(result, Appended)
    return result.last_offset + 1


async def test_the_marker_is_settled_when_its_offsets_are_seen(one: Coordinating) -> None:
    """Not before; an abort lets none be seen."""
    group = group_of(0)
    assert await commit(one, group, 5) is ErrorCode.NONE
    assert await one.committed(group) == []
    partition = one.led[0].partition
    assert await one.groups.settle_offsets(partition, mark(one, 0)) is ErrorCode.NONE
    assert await one.committed(group) == [5]
    await commit(one, group, 6)
    end = mark(one, 0, MarkerType.ABORT)
    assert await one.groups.settle_offsets(partition, end) is ErrorCode.NONE
    assert await one.committed(group) == [5]


async def test_an_elected_coordinator_knows_what_is_open(one: Coordinating) -> None:
    """From the log; a marker that is stored while it loads counts as well, and its answer waits for the load."""
    group = group_of(0)
    led = one.led[0]
    await commit(one, group, 5)
    one.groups.lost(led.partition)
    assert await one.groups.settle_offsets(led.partition, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    one.groups.led(led.partition, 1)
    end = mark(one, 0)
    settled = asyncio.ensure_future(one.groups.settle_offsets(led.partition, end))
    await asyncio.sleep(0)
    assert not settled.done()
    assert await settled is ErrorCode.NONE
    assert await one.committed(group) == [5]
    await until(lambda: one.groups.shards[0].coordinator is not None)
    one.groups.lost(led.partition)
    one.groups.led(led.partition, 1)
    assert await one.committed(group) == [5]


async def test_a_lead_that_is_lost_ends_the_wait(one: Coordinating) -> None:
    """The sender of the marker asks the next leader."""
    partition = one.led[0].partition
    settled = asyncio.ensure_future(
        one.groups.settle_offsets(partition, partition.log.log_end_offset + 1)
    )
    await asyncio.sleep(0)
    assert not settled.done()
    one.groups.lost(partition)
    assert await settled is ErrorCode.NOT_LEADER_OR_FOLLOWER
