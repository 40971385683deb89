"""A broker that leads on in the next leader epoch: what it has stored is answered as if nothing had happened.

librdkafka takes a batch that was answered with 6 for stored if the next one on the connection succeeds, and then knows
no offset of it (IMPLICITACK in its log).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.config.loading import LogFlush
from echoless.broker.metadata.node_data import LeaderAndIsr
from echoless.broker.partitions.partition import Partition
from echoless.broker.records import pending
from echoless.broker.threads import DISK
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import Codec
from echoless.protocol.records import Record, build_batch
from tests.hostile.bombs import tiny_records
from tests.support.in_process import in_process
from tests.support.raw_client import RawConnection, create_topic
from tests.support.raw_produce import PartitionData

BROKER = 1
SILENT = 2
"""A follower that never fetches, so that nothing is committed while it is in sync."""
VERSION = 9
LARGE = 20_000
"""Records of a batch that is opened in a thread."""


class Led:
    """Partition 0 of a topic with two, and a connection of a producer."""

    def __init__(self, partition: Partition, kafka: RawConnection) -> None:
        self.partition = partition
        self.kafka = kafka
        self._version = 1000

    def state(self, leader: int, leader_epoch: int, *isr: int) -> None:
        """The state node says so."""
        self._version += 1
        state = LeaderAndIsr(leader, leader_epoch, isr, node_version=self._version)
        self.partition.update(state, (BROKER, SILENT))

    @property
    def epoch(self) -> int:
        return self.partition.leader_epoch

    async def send(self, sequence: int, acks: int) -> None:
        """Sends a batch of one record; returns when it is in the log."""
        batch = build_batch(
            [Record(0, 0, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=sequence
        )
        self.kafka.send_produce(VERSION, acks, [PartitionData("t", 0, batch)])
        await until(lambda: self.partition.log.log_end_offset > sequence)

    async def answers(self, count: int) -> list[tuple[int, int]]:
        """Error and base offset of the next answers."""
        rows = [(await self.kafka.receive_produce(VERSION))[0] for _ in range(count)]
        return [(row.error, row.base_offset) for row in rows]


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_true():  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0)


@pytest.fixture
def may_flush(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Threads that flush wait for this event, which is set at first."""
    event, run = asyncio.Event(), DISK.run
    event.set()

    async def wait_and_run(work: Callable[[], object]) -> object:
        await event.wait()
        return await run(work)

    monkeypatch.setattr(DISK, "run", wait_and_run)
    return event


@pytest.fixture(params=LogFlush)
async def led(
    request: pytest.FixtureRequest, tmp_path: Path, may_flush: asyncio.Event
) -> AsyncIterator[Led]:
    """Led by this broker; the other replica is in sync, and silent."""
    async with in_process(tmp_path, log_flush=request.param) as running:
        kafka = await RawConnection.open(running.kafka_address)
        await create_topic(kafka, "t", 2)
        led = Led(running.broker.partitions["t", 0], kafka)
        led.state(BROKER, led.epoch, BROKER, SILENT)
        yield led
        may_flush.set()
        await kafka.close()


async def test_a_wait_for_replicas_goes_on_in_the_next_epoch(led: Led) -> None:
    """The batch is where it was; the new epoch commits it, and the next one of the connection after it."""
    await led.send(0, acks=-1)
    led.state(BROKER, led.epoch + 1, BROKER, SILENT)
    await led.send(1, acks=-1)
    assert led.partition.high_watermark == 0
    led.state(BROKER, led.epoch + 1, BROKER)
    assert await led.answers(2) == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 1)]


@pytest.mark.parametrize("led", [LogFlush.COMMIT], indirect=True)
async def test_a_wait_for_the_flush_goes_on_in_the_next_epoch(
    led: Led, may_flush: asyncio.Event
) -> None:
    """acks=1 waits for this broker's disk alone, whichever epoch it leads in."""
    may_flush.clear()
    await led.send(0, acks=1)
    led.state(BROKER, led.epoch + 1, BROKER, SILENT)
    await led.send(1, acks=1)
    may_flush.set()
    assert await led.answers(2) == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 1)]


async def test_too_few_replicas_of_the_next_epoch_are_too_few(led: Led) -> None:
    """The ISR of the epoch that commits the batch counts: 20, as when it shrinks within an epoch."""
    led.partition.rules = replace(led.partition.rules, min_insync_replicas=2)
    await led.send(0, acks=-1)
    led.state(BROKER, led.epoch + 1, BROKER)
    assert await led.answers(1) == [(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 0)]


async def test_a_repeat_waits_on_as_its_original_does(led: Led) -> None:
    """In whichever epoch it came."""
    await led.send(0, acks=-1)
    led.state(BROKER, led.epoch + 1, BROKER, SILENT)
    await led.send(0, acks=-1)
    await until(lambda: len(led.partition.waiters.commit) == 2)
    led.state(BROKER, led.epoch + 1, BROKER)
    assert await led.answers(2) == [(ErrorCode.NONE, 0)] * 2


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("has_another_led", [False, True])
async def test_what_was_stored_before_a_wait_for_another_partition(
    led: Led, monkeypatch: pytest.MonkeyPatch, acks: int, *, has_another_led: bool
) -> None:
    """It is acknowledged unless another broker may have led meanwhile."""
    may_go_on, check_all = threading.Event(), pending.check_all

    def wait_and_check(*arguments: Any, **options: Any) -> None:
        assert may_go_on.wait(30)
        check_all(*arguments, **options)

    monkeypatch.setattr(pending, "check_all", wait_and_check)
    small, large = tiny_records(1, Codec.ZSTD), tiny_records(LARGE, Codec.ZSTD)
    rows = [PartitionData("t", 0, small), PartitionData("t", 1, large)]
    led.kafka.send_produce(VERSION, acks, rows)
    await until(lambda: led.partition.log.log_end_offset == 1)
    if has_another_led:
        led.state(SILENT, led.epoch + 1, BROKER, SILENT)
    led.state(BROKER, led.epoch + 1, BROKER)
    may_go_on.set()
    answers = await led.kafka.receive_produce(VERSION)
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER if has_another_led else ErrorCode.NONE
    assert [(one.error, one.base_offset) for one in answers] == [(code, 0), (ErrorCode.NONE, 0)]
