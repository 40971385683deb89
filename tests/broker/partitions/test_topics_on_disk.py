"""Directories of partitions come and go beside the event loop, in the order of the requests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.environment import Environment, this_machine
from echoless.broker.handlers.metadata import describe
from echoless.broker.metadata.node_data import LeaderAndIsr
from echoless.broker.metadata.topic import NewTopic, StateChange
from echoless.broker.network.request import Peer
from echoless.broker.partitions.partition import Partition
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.metadata_request import WantedTopic
from echoless.protocol.record_batch import read_header
from echoless.storage.file_system import StorageError
from echoless.storage.os_file_system import OsFileSystem
from tests.storage.log_workload import make_batch
from tests.support.in_process import Running, in_process
from tests.support.sync_guard import SyncGuard

PARTITIONS = 50
"""More than are made in one go."""


class StuckDisk(OsFileSystem):
    """A disk on which one call waits until `go`; before, `is_stuck` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.stuck_at = ""
        """The end of the path that is waited at; empty: of none."""
        self.is_stuck = threading.Event()
        self.go = threading.Event()
        self.fails = False

    def make_directory(self, path: str) -> None:
        self._wait(path)
        super().make_directory(path)

    def rename(self, old: str, new: str) -> None:
        self._wait(old)
        super().rename(old, new)

    def _wait(self, path: str) -> None:
        if self.stuck_at and path.endswith(self.stuck_at):
            self.is_stuck.set()
            assert self.go.wait(60)
            if self.fails:
                raise StorageError(path, "cannot create: the test says so")


def environment(disk: OsFileSystem) -> Environment:
    return this_machine()._replace(file_system=disk)


async def stuck(disk: StuckDisk) -> None:
    """Returns when the disk is waited for."""
    assert await asyncio.to_thread(disk.is_stuck.wait, 60)


def new(partitions: int = PARTITIONS) -> NewTopic:
    return NewTopic(name="t", partitions=partitions)


async def shown(running: Running, *names: str) -> list[Any]:
    """(name, error code, partitions) as in Metadata; of all topics if none is named."""
    wanted = [WantedTopic(name) for name in names] if names else None
    services = running.broker.services
    answer = describe(
        services, wanted, may_create=False, peer=Peer(1, "127.0.0.1:5000"), rights=None
    )
    answer = await answer if isinstance(answer, Awaitable) else answer
    return [(row["name"], row["error_code"], len(row["partitions"])) for row in answer["topics"]]


def directories(tmp_path: Path) -> set[str]:
    """Those of topic t."""
    return {path.name for path in (tmp_path / "data").glob("t-*")}


def append(running: Running, index: int) -> int:
    """The base offset of a record."""
    batch = make_batch()
    partition = running.broker.services.partitions.find("t", index)
    answer = partition.append(batch, read_header(batch), running.broker.clock.wall_ms())
    return answer.base_offset  # type: ignore[union-attr]


async def test_a_topic_is_told_of_when_all_its_partitions_take_records(tmp_path: Path) -> None:
    """Until then it is unknown to clients, and the broker serves all others."""
    disk = StuckDisk()
    async with in_process(tmp_path, environment=environment(disk)) as running:
        await running.broker.services.topics.create(NewTopic(name="other"))
        disk.stuck_at = "/t-30"
        creating = asyncio.create_task(running.broker.services.topics.create(new()))
        await stuck(disk)
        assert await shown(running) == [("other", 0, 1)]
        assert await shown(running, "t") == [("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)]
        assert not creating.done()
        disk.go.set()
        await creating
        assert await shown(running, "t") == [("t", 0, PARTITIONS)]
        assert [append(running, index) for index in range(PARTITIONS)] == [0] * PARTITIONS


async def test_whoever_creates_a_topic_that_is_coming_waits_for_it_too(tmp_path: Path) -> None:
    """The second creation gets the error that it exists once it does."""
    disk = StuckDisk()
    async with in_process(tmp_path, environment=environment(disk)) as running:
        disk.stuck_at = "/t-0"
        first = asyncio.create_task(running.broker.services.topics.create(new()))
        await stuck(disk)
        second = asyncio.create_task(running.broker.services.topics.create(new()))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not second.done()
        disk.go.set()
        with pytest.raises(KafkaError) as caught:
            await second
        assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert await shown(running, "t") == [("t", 0, PARTITIONS)]
        await first


async def test_new_partitions_are_told_of_when_they_take_records(tmp_path: Path) -> None:
    """The existing ones are listed all the time."""
    disk = StuckDisk()
    async with in_process(tmp_path, environment=environment(disk)) as running:
        await running.broker.services.topics.create(new(2))
        disk.stuck_at = "/t-2"
        extending = asyncio.create_task(running.broker.services.topics.create_partitions("t", 3))
        await stuck(disk)
        assert await shown(running, "t") == [("t", 0, 2)]
        assert append(running, 1) == 0
        disk.go.set()
        await extending
        assert await shown(running, "t") == [("t", 0, 3)]
        assert append(running, 2) == 0


async def test_a_topic_may_be_deleted_and_created_again_while_it_comes(tmp_path: Path) -> None:
    """Each request finds what the one before it left; nothing of the first topic stays."""
    disk = StuckDisk()
    async with in_process(tmp_path, environment=environment(disk)) as running:
        broker = running.broker
        disk.stuck_at = "/t-30"
        first = asyncio.create_task(broker.services.topics.create(new()))
        await stuck(disk)
        is_deleted = asyncio.Event()
        broker.registry.listen(lambda _: is_deleted.set())
        deleting = asyncio.create_task(broker.services.topics.delete("t"))
        await is_deleted.wait()
        second = asyncio.create_task(broker.services.topics.create(new(2)))
        disk.go.set()
        old, gone, topic = await asyncio.gather(first, deleting, second)
        assert old.topic_id == gone.topic_id != topic.topic_id
        assert set(broker.partitions) == {("t", 0), ("t", 1)}
        assert {one.topic_id for one in broker.partitions.values()} == {topic.topic_id}
        assert [append(running, index) for index in range(2)] == [0, 0]
    async with in_process(tmp_path) as running:
        assert {one.topic_id for one in running.broker.partitions.values()} == {topic.topic_id}
    assert {one for one in directories(tmp_path) if "-delete" not in one} == {"t-0", "t-1"}


async def test_a_deletion_waits_for_no_directory_and_a_creation_does(tmp_path: Path) -> None:
    """Requests for the topic are refused at once; the next one of its name finds nothing of it."""
    disk = StuckDisk()
    async with in_process(tmp_path, environment=environment(disk)) as running:
        await running.broker.services.topics.create(new(2))
        append(running, 0)
        disk.stuck_at = "/t-0"
        await running.broker.services.topics.delete("t")
        with pytest.raises(KafkaError) as caught:
            append(running, 0)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await stuck(disk)
        assert "t-0" in directories(tmp_path)
        creating = asyncio.create_task(running.broker.services.topics.create(new(1)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert "t" not in running.broker.registry.topics
        disk.go.set()
        await creating
        assert append(running, 0) == 0
        assert {one for one in directories(tmp_path) if "-delete" not in one} == {"t-0"}


async def test_no_node_is_left_of_a_deleted_topic(tmp_path: Path) -> None:
    """The mark of the deletion stays until the directories have left their names."""
    disk = StuckDisk()
    async with in_process(tmp_path, environment=environment(disk)) as running:
        broker = running.broker
        await broker.services.topics.create(new())
        disk.stuck_at = "/t-0"
        await broker.services.topics.delete("t")
        await stuck(disk)
        assert await broker.tree.children("/admin/delete_topics") == ["t"]
        disk.go.set()
        await asyncio.gather(*broker.topic_deletion._unfinished)
        for parent in ("/admin/delete_topics", "/brokers/topics", "/config/topics"):
            assert await broker.tree.children(parent) == []


async def test_files_of_a_deleted_topic_go_after_a_while(tmp_path: Path) -> None:
    """They are deleted with Kafka's delay, or in the background of the next start."""
    async with in_process(tmp_path) as running:
        await running.broker.services.topics.create(new())
        topic = await running.broker.services.topics.delete("t")
        await running.broker.replicas.until_removed(topic)
        renamed = directories(tmp_path)
        assert len(renamed) == PARTITIONS
    assert directories(tmp_path) == renamed
    async with in_process(tmp_path, log_segment_delete_delay_ms=0) as running:
        await running.broker.replicas._removal.swept()
        assert directories(tmp_path) == set()
        await running.broker.services.topics.create(new())
        topic = await running.broker.services.topics.delete("t")
        await running.broker.replicas.until_removed(topic)
        await running.broker.replicas._removal.swept()
        assert directories(tmp_path) == set()


async def test_a_change_of_one_partition_does_not_look_at_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic of thousands changes as often as any of its partitions does."""
    async with in_process(tmp_path) as running:
        broker = running.broker
        topic = await broker.services.topics.create(new())
        updated: list[int] = []
        update = Partition.update

        def recording(partition: Partition, state: LeaderAndIsr, replicas: tuple[int, ...]) -> None:
            updated.append(partition.index)
            update(partition, state, replicas)

        monkeypatch.setattr(Partition, "update", recording)
        before = topic.states[7]
        after = before._replace(leader_epoch=before.leader_epoch + 1)
        await broker.registry.change_states([StateChange("t", 7, before, after)])
        assert updated == [7]
        assert broker.partitions["t", 7].leader_epoch == after.leader_epoch


async def test_a_broker_may_stop_while_a_topic_comes(tmp_path: Path) -> None:
    """The tree knows the topic; the next start makes what is missing."""
    disk = StuckDisk()
    async with in_process(tmp_path, environment=environment(disk)) as running:
        disk.stuck_at = "/t-0"
        creating = asyncio.create_task(running.broker.services.topics.create(new()))
        await stuck(disk)
        disk.go.set()
    await asyncio.gather(creating, return_exceptions=True)
    async with in_process(tmp_path) as running:
        assert await shown(running) == [("t", 0, PARTITIONS)]
        assert append(running, PARTITIONS - 1) == 0


async def test_a_disk_that_fails_while_a_topic_comes_is_told(tmp_path: Path) -> None:
    """The creator gets the error that no topic accepts records."""
    disk = StuckDisk()
    disk.fails = True
    async with in_process(tmp_path, environment=environment(disk)) as running:
        disk.stuck_at = "/t-30"
        disk.go.set()
        with pytest.raises(KafkaError, match="the test says so") as caught:
            await running.broker.services.topics.create(new())
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_housekeeping_passes_over_partitions_that_are_deleted_meanwhile(
    tmp_path: Path,
) -> None:
    """Their files are closed; looking at them would take the whole directory offline."""
    async with in_process(tmp_path) as running:
        broker = running.broker
        await broker.services.topics.create(
            NewTopic(name="t", partitions=9, config={"retention.ms": "1"})
        )
        for index in range(9):
            append(running, index)
        housekeeping = asyncio.create_task(broker.housekeeping.round())
        await broker.services.topics.delete("t")
        await housekeeping
        assert broker.logs.failure is None


def test_the_guard_finds_a_sync_on_the_loop(tmp_path: Path) -> None:
    """It finds none in another thread, nor before requests are served."""
    guard = SyncGuard(OsFileSystem())
    guard.sync_directory(str(tmp_path))
    guard.watch()
    thread = threading.Thread(target=lambda: guard.sync_directory(str(tmp_path)))
    thread.start()
    thread.join()
    guard.check()
    file = guard.open(str(tmp_path / "file"), create=True)
    file.sync()
    file.close()
    guard.unwatch()
    with pytest.raises(AssertionError, match="file"):
        guard.check()
