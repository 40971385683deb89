"""What a broker still knows after a restart, stand-alone and in a cluster, over disks in memory."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from broker.broker import Broker
from broker.config import Address, Config
from broker.coordination.node_tree import NodeTree
from broker.coordination.topic import NewTopic
from broker.environment import Environment
from broker.partition import Partition
from broker.replication.peers import TcpPeers
from broker.topic_config import to_log_config
from protocol.dedup import Duplicate, Reject, UnknownProducerId
from protocol.record_batch import read_header
from storage.log import Appended, Log
from storage.log_config import LogConfig
from tests.fakes.memory_file_system import MemoryFileSystem, keep_all
from tests.fakes.memory_node_tree import MemoryTree
from tests.storage.log_workload import make_batch
from tests.storage.one_log import NOW_MS

ENDPOINTS = {"PLAINTEXT": Address("127.0.0.1", 1), "NATIVE": Address("127.0.0.1", 2)}
STAND_ALONE, CLUSTER = "embedded", "zookeeper://memory"
WRAP = 2**31 - 8
"""The first sequence of a run that goes across the wrap."""


class Host:
    """One broker at a time, on a disk and a coordinator that outlive it."""

    def __init__(self, coordinator: str, **settings: Any) -> None:
        self.server = MemoryTree()
        self.disk = MemoryFileSystem()
        self.config = Config(data_dir="/data", coordinator=coordinator, **settings)
        self.broker: Broker | None = None

    async def start(self) -> Broker:
        """Starts a broker; the one before has to be gone."""
        tree = self.server.connect()
        tree.session_timeout_s = 0.1

        async def open_tree(_config: Config) -> NodeTree:
            return tree

        rng = random.Random(1)
        environment = Environment(
            file_system=self.disk,
            open_tree=open_tree,
            open_peers=TcpPeers,
            now_ms=lambda: NOW_MS,
            rng=rng,
            new_uuid=lambda: uuid.UUID(int=rng.getrandbits(128)),
        )
        self.broker = Broker(self.config, environment)
        await self.broker.start(ENDPOINTS)
        self._tree = tree
        return self.broker

    async def led(self, topic: str) -> Partition:
        """The topic's only partition, once it is led here."""
        assert self.broker is not None
        while not (partition := self.broker.find_partition(topic, 0)).is_leader:
            await self._tree.children("/brokers")  # a turn for the others
        return partition

    async def restart(self, *, is_clean: bool) -> None:
        """Ends the broker, by SIGTERM or SIGKILL, and starts another on what the disk then holds."""
        assert self.broker is not None
        killed = self.disk.after_power_loss(keep_all)
        await self.broker.stop()
        if not is_clean:
            self.disk = killed
        await self.start()


def _offset_of_original(answer: Appended | Duplicate | Reject) -> int:
    assert isinstance(answer, Duplicate), answer
    assert answer.original is not None, "it is known to be old, but no longer where it is stored"
    return answer.original.base_offset


def _append(partition: Partition, sequence: int) -> Appended | Duplicate | Reject:
    batch = make_batch(producer_id=1, epoch=0, sequence=sequence % 2**31, timestamp=NOW_MS)
    return partition.append(batch, read_header(batch), NOW_MS)


@pytest.mark.parametrize("coordinator", [STAND_ALONE, CLUSTER])
@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("first", [0, WRAP])
async def test_a_topics_own_window_is_whole_after_every_restart(
    coordinator: str, first: int, *, is_clean: bool
) -> None:
    """`producer.state.batches.to.retain` of a topic counts from the moment its log is opened."""
    host = Host(coordinator, unknown_producer_id=UnknownProducerId.ACCEPT)
    broker = await host.start()
    window = {"producer.state.batches.to.retain": "20"}
    await broker.create_topic(NewTopic(name="orders", config=window))
    partition = await host.led("orders")
    other = make_batch()  # a producer may begin anywhere in a partition that has held records
    partition.append(other, read_header(other), NOW_MS)
    for number in range(15):
        appended = _append(partition, first + number)
        assert isinstance(appended, Appended), appended
    for _ in range(2):
        await host.restart(is_clean=is_clean)
        partition = await host.led("orders")
        answers = [_append(partition, first + number) for number in range(15)]
        assert [_offset_of_original(answer) for answer in answers] == list(range(1, 16))
    assert host.broker is not None
    await host.broker.stop()


@pytest.mark.parametrize("coordinator", [STAND_ALONE, CLUSTER])
async def test_a_log_is_opened_with_all_that_its_topic_sets(
    coordinator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with the broker's values first: what opening does with those cannot be undone."""
    host = Host(coordinator)
    broker = await host.start()
    overrides = {"segment.bytes": "2000", "retention.ms": "1000", "index.interval.bytes": "100"}
    await broker.create_topic(NewTopic(name="orders", config=overrides))
    await host.led("orders")
    opened = []
    log_open = Log.open

    def open_log(directory: str, config: LogConfig, **options: Any) -> Log:
        opened.append((directory, config))
        return log_open(directory, config, **options)

    monkeypatch.setattr(Log, "open", open_log)
    await host.restart(is_clean=True)
    assert opened == [("/data/orders-0", to_log_config(host.config, overrides))]
    assert host.broker is not None
    await host.broker.stop()
