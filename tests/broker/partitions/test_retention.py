"""Retention while the broker runs. Its parts are tested in tests/storage/test_retention.py."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from echoless.broker.config.loading import LogFlush
from echoless.storage.segment import Segment
from tests.support.echoless import Echoless
from tests.support.in_process import Running, flushed, in_process
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, create_topic, list_offset
from tests.support.raw_produce import PartitionData

SEGMENTS = 5


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A broker that flushes before it acknowledges: only what is flushed may go."""
    async with in_process(tmp_path, log_flush=LogFlush.COMMIT) as running:
        yield running


async def old_segments(kafka: RawConnection) -> None:
    """A topic `t` whose records are of 1970, in several segments, the last of them still written."""
    await create_topic(kafka, "t", 1, {"segment.bytes": "100"})
    for _ in range(SEGMENTS):
        row = PartitionData("t", 0, plain_batch([b"x"]).encode())
        (answer,) = await kafka.produce(9, -1, [row])
        assert answer.error == 0


async def housekeep_until_start_moved(running: Running) -> None:
    """A closed segment goes once the snapshot at its end is on disk."""
    log = running.broker.partitions["t", 0].log
    async with asyncio.timeout(20):
        while log.log_start_offset == 0:
            await running.broker.housekeeping.round()


async def test_old_segments_go_without_a_sync_on_the_loop(running: Running, kafka: RawConnection):
    """The broker's file system here notes each sync on the loop, and the fixture fails for it."""
    await old_segments(kafka)
    await housekeep_until_start_moved(running)
    assert await list_offset(kafka, "t", 0, timestamp=-2) > 0


async def test_files_go_in_a_thread_and_the_log_is_served_meanwhile(
    running: Running, kafka: RawConnection, monkeypatch: pytest.MonkeyPatch
):
    """Removing a segment of a gigabyte takes a while, whether it is synced or not."""
    await old_segments(kafka)
    threads: set[int] = set()
    remove = Segment.remove

    def noted(segment: Segment) -> None:
        threads.add(threading.get_ident())
        remove(segment)

    monkeypatch.setattr(Segment, "remove", noted)
    log = running.broker.partitions["t", 0].log
    async with asyncio.timeout(20):
        while not threads:
            row = PartitionData("t", 0, plain_batch([b"x"]).encode())
            _, (answer,) = await asyncio.gather(
                running.broker.housekeeping.round(), kafka.produce(9, -1, [row])
            )
            assert answer.error == 0
    assert threading.get_ident() not in threads
    assert 0 < log.first_offset <= log.log_start_offset


async def test_a_partition_that_is_deleted_under_its_retention_is_no_disk_failure(
    running: Running, kafka: RawConnection, monkeypatch: pytest.MonkeyPatch
):
    """The deletion waits for the removal that is at work."""
    await old_segments(kafka)
    broker = running.broker
    log = broker.partitions["t", 0].log
    entered, may_go_on = threading.Event(), threading.Event()
    remove = Segment.remove

    def held_up(segment: Segment) -> None:
        entered.set()
        assert may_go_on.wait(20)
        remove(segment)

    monkeypatch.setattr(Segment, "remove", held_up)
    housekeeping = asyncio.create_task(_housekeep_until(running, entered))
    assert await asyncio.to_thread(entered.wait, 20)
    deletion = asyncio.create_task(
        kafka.call("delete_topics", 1, topic_names=("t",), timeout=timedelta(seconds=20))
    )
    async with asyncio.timeout(20):
        while ("t", 0) in broker.partitions:  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0)
    assert log.first_offset > 0
    may_go_on.set()
    await asyncio.gather(housekeeping, deletion)
    assert broker.logs.failure is None


@pytest.mark.parametrize("log_flush", [LogFlush.OS, LogFlush.COMMIT])
async def test_a_topic_that_nobody_writes_to_any_more_expires(
    tmp_path: Path, log_flush: LogFlush
) -> None:
    """The active segment is closed, and what closed it asks for the flush that lets it go."""
    async with in_process(tmp_path, log_flush=log_flush) as running:
        kafka = await RawConnection.open(running.kafka_address)
        await old_segments(kafka)
        await flushed(running.broker)
        await all_expired(running, kafka)
        await kafka.close()


async def test_what_a_crash_left_unflushed_expires_without_another_record(tmp_path: Path) -> None:
    """The start finds a recovery point below the end of the log; only an append used to move it."""
    broker = Echoless(tmp_path, {"log_retention_ms": "-1"})
    broker.data_dir = tmp_path / "data"
    broker.start()
    kafka = await RawConnection.open(broker.kafka_address)
    await old_segments(kafka)
    await kafka.close()
    broker.kill()
    async with in_process(tmp_path) as running:
        kafka = await RawConnection.open(running.kafka_address)
        assert running.broker.partitions["t", 0].log.awaits_flush
        await all_expired(running, kafka)
        await kafka.close()


async def all_expired(running: Running, kafka: RawConnection) -> None:
    """Waits until no record is left."""
    end = await list_offset(kafka, "t", 0, timestamp=-1)
    async with asyncio.timeout(20):
        while await list_offset(kafka, "t", 0, timestamp=-2) < end:
            await running.broker.housekeeping.round()
            await flushed(running.broker)
    assert running.broker.partitions["t", 0].log.first_offset == end


async def _housekeep_until(running: Running, event: threading.Event) -> None:
    while not event.is_set():
        await running.broker.housekeeping.round()
