"""The leader's answers to followers, and what it learns from their fetches."""

from __future__ import annotations

import pytest

from echoless.broker.config.loading import LogFlush
from echoless.broker.partitions.core.divergence import Divergence
from echoless.broker.replication.leader import fetch_as_replica, read_further
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.record_batch import read_header
from tests.broker.partitions.led import Led

BROKER_EPOCH = 5


async def test_a_fresh_replica_copies_deleted_records_of_old_epochs() -> None:
    """Deleted records remain in the first segment: it must not start over at every old epoch."""
    led = Led(LogFlush.OS, replicas=(1, 2))
    for epoch in (1, 2, 3):
        led.lead(epoch)
        led.append(epoch - 1)
    partition, log = led.partition, led.one.log
    partition.advance_log_start(3)
    assert log.first_offset == 0
    offset, last_epoch = 0, -1
    while offset < log.log_end_offset:
        read = fetch_as_replica(partition, 2, BROKER_EPOCH, 3, offset, last_epoch, 1)
        header = read_header(read.batches)
        assert header.base_offset == offset
        offset, last_epoch = header.next_offset, header.partition_leader_epoch


async def test_a_fetch_commits_what_lies_below_it() -> None:
    """And one of an earlier broker epoch commits nothing: its log may have been lost since."""
    led = Led(LogFlush.OS, replicas=(1, 2))
    led.lead(2, isr=(1, 2))
    led.append(0)
    led.fencing.epochs[2] = BROKER_EPOCH
    assert led.partition.high_watermark == 0
    fetch_as_replica(led.partition, 2, BROKER_EPOCH - 1, 2, 1, 2, 1)
    assert led.partition.high_watermark == 0
    assert led.fencing.progress == []
    read = fetch_as_replica(led.partition, 2, BROKER_EPOCH, 2, 1, 2, 1)
    assert (read.batches, read.high_watermark) == (b"", 1)
    assert led.fencing.progress == [led.partition]


async def test_a_diverging_follower_gets_no_batches_and_proves_nothing() -> None:
    """Its log has to be cut first, where the leader's ends that epoch."""
    led = Led(LogFlush.OS, replicas=(1, 2))
    led.append(0)
    led.lead(3, isr=(1, 2))
    led.append(1)
    led.fencing.epochs[2] = BROKER_EPOCH
    read = fetch_as_replica(led.partition, 2, BROKER_EPOCH, 3, 2, 1, 1000)
    assert (read.diverging, read.batches) == (Divergence(1, 1), b"")
    assert led.fencing.progress == []


@pytest.mark.parametrize("broker_id", [1, 3])
async def test_only_other_replicas_may_fetch(broker_id: int) -> None:
    """Neither the leader itself nor a broker without a replica."""
    led = Led(LogFlush.OS, replicas=(1, 2))
    with pytest.raises(KafkaError) as failure:
        fetch_as_replica(led.partition, broker_id, BROKER_EPOCH, 1, 0, -1, 1)
    assert failure.value.code is ErrorCode.REPLICA_NOT_AVAILABLE


async def test_the_end_of_a_wait_reads_what_has_come_and_proves_nothing() -> None:
    """The fetch was noted when it came; the role is asked again, for it may have ended meanwhile."""
    led = Led(LogFlush.OS, replicas=(1, 2))
    led.lead(2, isr=(1, 2))
    led.fencing.epochs[2] = BROKER_EPOCH
    assert fetch_as_replica(led.partition, 2, BROKER_EPOCH, 2, 0, -1, 1000).batches == b""
    assert read_further(led.partition, 2, 0, 1000).batches == b""
    led.append(0)
    progress = list(led.fencing.progress)
    read = read_further(led.partition, 2, 0, 1000)
    assert read_header(read.batches).base_offset == 0
    assert (read.high_watermark, read.log_start_offset, read.diverging) == (0, 0, None)
    assert read_further(led.partition, 2, 0, 0).batches == b""
    assert led.fencing.progress == progress
    led.lead(3, isr=(1, 2))
    with pytest.raises(KafkaError) as raised:
        read_further(led.partition, 2, 0, 1000)
    assert raised.value.code is ErrorCode.FENCED_LEADER_EPOCH
    led.partition.resign()
    with pytest.raises(KafkaError) as raised:
        read_further(led.partition, 2, 0, 1000)
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
