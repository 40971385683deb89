"""Logs found at start that do not belong to the broker's partitions."""

from __future__ import annotations

import uuid

import pytest

from echoless.broker.broker import Broker
from echoless.broker.metadata.topic import NewTopic
from echoless.protocol.record_batch import read_header
from echoless.storage.file_system import CorruptLogError
from echoless.storage.partition_metadata import read_topic_id, write_topic_id
from tests.broker.test_restart import CLUSTER, STAND_ALONE, Host
from tests.storage.log_workload import make_batch
from tests.storage.one_log import NOW_MS

BATCHES = 5


async def filled(coordinator: str = STAND_ALONE, *topics: str) -> tuple[Host, Broker]:
    """A broker that leads the topics, `orders` if none is named, with records in each."""
    host = Host(coordinator)
    broker = await host.start()
    for name in topics or ("orders",):
        await broker.services.topics.create(NewTopic(name=name, partitions=1, replication_factor=1))
        partition = await host.led(name)
        for _ in range(BATCHES):
            batch = make_batch()
            partition.append(batch, read_header(batch), NOW_MS)
    return host, broker


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("coordinator", [STAND_ALONE, CLUSTER])
async def test_another_topic_id_deletes_no_log(
    caplog: pytest.LogCaptureFixture, coordinator: str, is_clean: bool
) -> None:
    """A flipped bit in an old `partition.metadata`, which has no checksum, gives just that."""
    host, broker = await filled(coordinator)
    topic_id = broker.services.partitions.find("orders", 0).topic_id
    directory = "/data/orders-0"
    flipped = uuid.UUID(int=topic_id.int ^ 1)
    write_topic_id(host.disk, directory, flipped)
    await host.restart(is_clean=is_clean)
    assert host.broker is not None
    (stray,) = host.broker.logs.strays
    assert (stray.topic_id, stray.records) == (flipped, BATCHES)
    assert read_topic_id(host.disk, directory) == topic_id
    assert host.broker.services.partitions.find("orders", 0).log.log_end_offset == 0
    assert not host.broker.logs.tail_is_safe
    (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert stray.name in line.getMessage()
    await host.broker.stop()


async def test_exchanged_directories_are_both_kept() -> None:
    """Each has the other's topic id."""
    host, broker = await filled(STAND_ALONE, "orders", "bills")
    await broker.stop()
    disk = host.disk
    for old, new in (("orders-0", "x"), ("bills-0", "orders-0"), ("x", "bills-0")):
        disk.rename(f"/data/{old}", f"/data/{new}")
    broker = await host.start()
    assert [(stray.key, stray.records) for stray in broker.logs.strays] == [
        (("bills", 0), BATCHES),
        (("orders", 0), BATCHES),
    ]
    await broker.stop()


async def test_a_damaged_topic_id_is_refused() -> None:
    """The checksum shows the damage; the message says once what it is, and what to do."""
    host, broker = await filled()
    await broker.stop()
    path = "/data/orders-0/partition.metadata"
    data = bytearray(host.disk.read_bytes(path))
    data[25] ^= 1
    host.disk.write_atomic(path, bytes(data))
    with pytest.raises(CorruptLogError) as caught:
        await host.start()
    assert str(caught.value) == (
        f"{path}: damaged at position 0: its checksum does not match. Bring a copy back, or correct it "
        f"by hand and remove its line crc32c; or stop the broker and run: "
        f"echoless strays set-aside /data orders-0"
    )


async def test_the_log_of_an_unknown_topic_is_kept() -> None:
    """The coordinator may have lost it, as an old copy of its file does."""
    host, broker = await filled(STAND_ALONE, "orders", "bills")
    deleted = await broker.services.topics.delete("bills")
    await broker.replicas.until_removed(deleted)
    assert host.disk.list_directory("/data").count("bills-0") == 0  # by command: deleted
    assert broker.logs.strays == []
    await broker.stop()
    host.disk.make_directory("/data/lost-0")
    write_topic_id(host.disk, "/data/lost-0", uuid.UUID(int=5))
    broker = await host.start()
    (stray,) = broker.logs.strays
    assert stray.key == ("lost", 0)
    assert "no topic lost" in stray.reason
    await broker.stop()


@pytest.mark.parametrize("coordinator", [STAND_ALONE, CLUSTER])
async def test_a_deletion_that_was_answered_is_finished_after_a_kill(coordinator: str) -> None:
    """The directories had their names still: the tree says that they were deleted, so they are no strays."""
    host, broker = await filled(coordinator, "orders", "bills")
    await broker.services.topics.delete("bills")
    assert "bills-0" in host.disk.list_directory("/data")
    await host.restart(is_clean=False)
    assert host.broker is not None
    assert host.broker.logs.strays == []
    assert list(host.broker.partitions) == [("orders", 0)]
    await host.broker.replicas._removal.swept()
    assert not [name for name in host.disk.list_directory("/data") if name.startswith("bills")]
    assert await host.broker.tree.children("/admin/delete_topics") == []
    await host.broker.services.topics.create(
        NewTopic(name="bills", partitions=1, replication_factor=1)
    )
    assert (await host.led("bills")).log.log_end_offset == 0
    await host.broker.stop()
