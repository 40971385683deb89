"""One partition: the high watermark, and who waits for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from echoless.broker.config.loading import LogFlush
from echoless.broker.metadata.node_data import LeaderAndIsr
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.storage.appended import Appended
from tests.broker.partitions.fake_fencing import FakeFencing
from tests.broker.partitions.led import Led


async def test_high_watermark_follows_the_log_at_once() -> None:
    """With `log_flush=os` a record written by the only replica is committed."""
    led = Led(LogFlush.OS)
    led.append(0)
    assert led.partition.high_watermark == led.one.log.log_end_offset == 1


async def test_high_watermark_waits_for_the_flush() -> None:
    """With `log_flush=commit` nothing counts as committed, or can be read, before it is durable."""
    led = Led(LogFlush.COMMIT)
    led.append(0)
    assert (led.partition.durable_offset, led.partition.high_watermark) == (0, 0)
    assert led.partition.visible_end(read_committed=False) == 0
    assert led.partition.last_stable_offset == 0
    assert led.dirty == [led.partition]
    led.flush()
    assert led.partition.high_watermark == 1
    led.append(1)
    assert led.partition.high_watermark == 1


async def test_after_a_kill_the_high_watermark_waits_for_the_first_flush() -> None:
    """Recovered records may be in the page cache only; a new leader syncs them first."""
    led = Led(LogFlush.COMMIT)
    led.append(0)
    led.one.open()
    led.partition = led.open()
    led.dirty.clear()
    led.lead(2)
    assert led.partition.high_watermark == 0
    assert led.dirty == [led.partition]
    led.flush()
    assert led.partition.high_watermark == 1


async def test_who_waits_is_woken_by_the_offset() -> None:
    """A produce is acknowledged once everything below its end is committed, and not before."""
    led = Led(LogFlush.COMMIT)
    led.append(0)
    waiting = led.partition.waiters.commit.wait_for(1)
    led.partition.advance_high_watermark()
    assert not waiting.done()
    led.flush()
    await waiting


async def test_who_waits_is_told_that_leadership_ended() -> None:
    """A broken promise never becomes a success."""
    led = Led(LogFlush.COMMIT)
    led.append(0)
    waiting = led.partition.waiters.commit.wait_for(1)
    led.partition.resign()
    with pytest.raises(KafkaError) as failure:
        await waiting
    assert failure.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_who_waits_goes_on_under_the_same_leader() -> None:
    """Its next epoch commits what is in the log, once those in sync have proved in that epoch that they have it."""
    led = Led(LogFlush.OS, (1, 2), FakeFencing(epochs={2: 7}))
    led.lead(2, isr=(1, 2))
    led.append(0)
    waiting = led.partition.waiters.commit.wait_for(1)
    led.lead(3, isr=(1, 2))
    assert led.partition.high_watermark == 0
    assert not waiting.done()
    led.partition.note_fetch(2, 7, 1)
    await waiting
    assert led.partition.has_led_since(1)


@pytest.mark.parametrize("history", ["another leads", "an epoch is skipped", "the session is lost"])
async def test_who_waits_does_not_outlast_another_leader(history: str) -> None:
    """Another leader may have replaced the batch by others: leading again does not bring it back."""
    led = Led(LogFlush.OS, replicas=(1, 2))
    led.lead(2, isr=(1, 2))
    led.append(0)
    waiting = led.partition.waiters.commit.wait_for(1)
    if history == "another leads":
        state = LeaderAndIsr(leader=2, leader_epoch=3, isr=(1, 2), node_version=3)
        led.partition.update(state, led.replicas)
    elif history == "the session is lost":
        led.partition.resign()
    led.lead(4)
    with pytest.raises(KafkaError) as failure:
        await waiting
    assert failure.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not led.partition.has_led_since(2)
    assert led.partition.has_led_since(4)


async def test_a_leader_epoch_is_led_once() -> None:
    """An epoch that was led is never led again, not even under another session."""
    led = Led(LogFlush.OS)
    led.partition.resign()
    led.lead(1, version=9)
    assert not led.partition.is_leader
    led.lead(2, version=10)
    assert led.partition.is_leader


async def test_a_leader_is_not_sure_of_a_gap_behind_a_refusal() -> None:
    """Missing batches may be in transit.

    From the leader before, or refused in doubt or for lack of replicas.
    """
    led = Led(LogFlush.OS, replicas=(1, 2))
    led.append(0)
    assert led.refusal(2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    led.lead(2)  # it has refused nothing, and no other has led
    assert led.refusal(2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    led.lead(4)
    assert led.refusal(2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert isinstance(led.append(1), Appended)
    assert isinstance(led.append(2), Appended)
    assert led.refusal(4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    led.fencing.is_proved = False
    with pytest.raises(KafkaError):
        led.partition.check_leader()  # batch 3 is refused, and batch 4 comes after it
    led.fencing.is_proved = True
    assert led.refusal(4) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert isinstance(led.append(3), Appended)
    assert led.refusal(5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    led.partition.rules = replace(led.partition.rules, min_insync_replicas=2)
    with pytest.raises(KafkaError):
        led.partition.check_in_sync()
    assert led.refusal(5) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    alone = Led(LogFlush.OS)
    alone.append(0)
    alone.lead(2)
    assert alone.refusal(2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(
    ("known", "code"),
    [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
async def test_a_client_of_another_epoch_is_refused(known: int, code: ErrorCode) -> None:
    """Older and newer epochs than the leader's own get different errors; -1 is not checked."""
    led = Led(LogFlush.OS)
    led.partition.check_leader(1)
    led.partition.check_leader(-1)
    with pytest.raises(KafkaError) as failure:
        led.partition.check_leader(known)
    assert failure.value.code is code


async def test_records_are_deleted_up_to_the_high_watermark_only() -> None:
    """DeleteRecords never takes what is not committed."""
    led = Led(LogFlush.COMMIT)
    led.append(0)
    with pytest.raises(KafkaError) as failure:
        led.partition.advance_log_start(1)
    assert failure.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    led.flush()
    led.partition.advance_log_start(1)
    assert led.one.log.log_start_offset == 1
