"""Retention while the broker runs. Its parts are tested in tests/storage/test_retention.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.config.loading import LogFlush
from storage.file_system import StorageError
from tests.support.in_process import Running, in_process
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
            await running.broker._housekeep()


async def test_old_segments_go_without_a_sync_on_the_loop(running: Running, kafka: RawConnection):
    """The broker's file system here notes each sync on the loop, and the fixture fails for it."""
    await old_segments(kafka)
    await housekeep_until_start_moved(running)
    assert await list_offset(kafka, "t", 0, timestamp=-2) > 0


async def test_a_partition_that_is_deleted_under_its_retention_is_no_disk_failure(
    running: Running, kafka: RawConnection, monkeypatch: pytest.MonkeyPatch
):
    """The directory may be gone when it is to be synced."""
    await old_segments(kafka)
    broker = running.broker
    log = broker.partitions["t", 0].log

    def vanish() -> None:
        del broker.partitions["t", 0]
        raise StorageError("t-0", "cannot sync: No such file or directory")

    monkeypatch.setattr(log, "sync_removal", vanish)
    partition = broker.partitions["t", 0]
    await housekeep_until_start_moved(running)
    assert broker.logs.failure is None
    broker.partitions["t", 0] = partition
