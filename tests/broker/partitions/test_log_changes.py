"""A log that a thread changes: roles, removal, flushes and the stop wait; the event loop does not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from echoless.broker.environment import this_machine
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.partitions.log_changes import LogChange
from echoless.broker.partitions.partition import Partition
from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.record_batch import read_header
from echoless.storage.file_system import StorageError
from echoless.storage.os_file_system import OsFileSystem
from tests.storage.log_workload import make_batch
from tests.support.in_process import Running, flushed, in_process


class StuckSync(OsFileSystem):
    """A disk on which syncing a partition's directory waits until `go`, and may fail then."""

    def __init__(self) -> None:
        super().__init__()
        self.is_stuck = threading.Event()
        self.go = threading.Event()
        self.fails = False
        self.stuck_at = ""
        """The end of the directory's path; empty: none."""

    def sync_directory(self, path: str) -> None:
        if self.stuck_at and path.endswith(self.stuck_at):
            self.is_stuck.set()
            assert self.go.wait(60)
            if self.fails:
                raise StorageError(path, "cannot sync: the test says so")
        super().sync_directory(path)


@dataclass(slots=True)
class Changing:
    """A broker with a topic of one partition, whose log of five records is being cut to nothing."""

    running: Running
    disk: StuckSync
    partition: Partition
    change: LogChange
    making: asyncio.Task[None]
    finished: list[bool] = field(default_factory=list)

    async def go(self) -> None:
        self.disk.go.set()
        await asyncio.wait_for(self.making, 60)

    def resume(self) -> None:
        """Gives the partition the role that it had before the cut: leader."""
        self.running.broker.replicas.resume()


@asynccontextmanager
async def changing(tmp_path: Path) -> AsyncIterator[Changing]:
    disk = StuckSync()
    environment = this_machine()._replace(file_system=disk)
    async with in_process(tmp_path, environment=environment) as running:
        services, replicas = running.broker.services, running.broker.replicas
        await services.topics.create(NewTopic(name="t", partitions=1))
        partition = services.partitions.find("t", 0)
        for _ in range(5):
            append(running, partition)
        partition.resign()
        pending = partition.log.start_truncation(0)
        assert pending is not None
        disk.stuck_at = "/t-0"
        finished: list[bool] = []
        change = LogChange(partition, pending, lambda: finished.append(True))
        making = asyncio.create_task(replicas.log_changes.make([change]))
        assert await asyncio.to_thread(disk.is_stuck.wait, 60)
        try:
            yield Changing(running, disk, partition, change, making, finished)
        finally:
            disk.go.set()


def append(running: Running, partition: Partition) -> int:
    batch = make_batch()
    answer = partition.append(batch, read_header(batch), running.broker.clock.wall_ms())
    return answer.base_offset  # type: ignore[union-attr]


async def test_a_role_waits_for_the_end_of_the_change(tmp_path: Path) -> None:
    """A leader takes batches at once, and so leads only a log that nothing else touches."""
    async with changing(tmp_path) as one:
        one.resume()
        assert not one.partition.is_leader
        with pytest.raises(KafkaError) as caught:
            one.partition.check_leader()
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await one.go()
        assert one.finished == [True]
        assert one.partition.is_leader
        assert one.partition.high_watermark == 0
        assert append(one.running, one.partition) == 0


async def test_a_role_that_was_given_up_meanwhile_is_void(tmp_path: Path) -> None:
    """The session was lost: what was read before counts for nothing."""
    async with changing(tmp_path) as one:
        one.resume()
        one.running.broker.replicas.resign()
        await one.go()
        assert not one.partition.is_leader
        one.resume()
        assert one.partition.is_leader


async def test_a_change_is_finished_without_the_one_that_asked(tmp_path: Path) -> None:
    """A fetcher ends at once when its broker stops; the log is not left half cut."""
    async with changing(tmp_path) as one:
        one.making.cancel()
        await asyncio.wait((one.making,))
        assert one.partition.log.is_changing
        closing = asyncio.create_task(one.running.broker.replicas.log_changes.close())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not closing.done()
        one.disk.go.set()
        await asyncio.wait_for(closing, 60)
        assert not one.partition.log.is_changing
        assert one.partition.log.log_end_offset == 0


async def test_flushes_and_housekeeping_leave_the_log_out(tmp_path: Path) -> None:
    """It is flushed afterwards; what others do goes on."""
    async with changing(tmp_path) as one:
        broker = one.running.broker
        await broker.services.topics.create(NewTopic(name="other", partitions=1))
        other = broker.services.partitions.find("other", 0)
        append(one.running, other)
        one.partition.mark_dirty()
        await flushed(broker)
        await broker.housekeeping.round()
        assert (other.log.recovery_point, one.partition.log.recovery_point) == (1, 0)
        one.resume()
        await one.go()
        append(one.running, one.partition)
        await flushed(broker)
        assert one.partition.log.recovery_point == 1


async def test_a_deleted_topic_leaves_its_name_when_the_change_has_ended(tmp_path: Path) -> None:
    """A thread renames the directory only then; a topic of the same name begins empty."""
    async with changing(tmp_path) as one:
        services = one.running.broker.services
        deleting = asyncio.create_task(services.topics.delete("t"))
        while one.partition in services.partitions.held.values():  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0)
        renamed = asyncio.create_task(services.partitions.until_free("t"))
        await asyncio.sleep(0)
        assert not renamed.done()
        assert (tmp_path / "data" / "t-0").exists()
        await one.go()
        await asyncio.wait_for(asyncio.gather(deleting, renamed), 60)
        assert one.finished == []
        await services.topics.create(NewTopic(name="t", partitions=1))
        assert append(one.running, services.partitions.find("t", 0)) == 0
        assert one.running.broker.logs.failure is None


async def test_a_disk_that_fails_takes_the_directory_offline(tmp_path: Path) -> None:
    """As any other work on it does; the one that asked learns of it too."""
    async with changing(tmp_path) as one:
        one.disk.fails = True
        await one.go()
        assert one.finished == []
        assert one.running.broker.logs.failure is not None
        with pytest.raises(StorageError, match="the test says so"):
            one.change.check()


async def test_a_damaged_producer_state_leaves_the_log_to_be_flushed(tmp_path: Path) -> None:
    """The change has ended the flush that was pending: what it left is marked again."""
    async with in_process(tmp_path) as running:
        broker = running.broker
        await broker.services.topics.create(NewTopic(name="t", partitions=1))
        partition = broker.services.partitions.find("t", 0)
        marked: list[Partition] = []
        partition._on_dirty = marked.append
        append(running, partition)
        partition.resign()
        partition.log.start_flush()
        marked.clear()
        pending = partition.log.start_replacement(9, b"damaged", clock_ahead_ms=0, now_ms=0)
        change = LogChange(partition, pending, lambda: None)
        await broker.replicas.log_changes.make([change])
        with pytest.raises(DecodeError):
            change.check()
        assert marked == [partition]
