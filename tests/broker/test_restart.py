"""A broker's knowledge after a restart, stand-alone and in a cluster, over disks in memory."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from echoless.broker.assembly import new_broker
from echoless.broker.broker import Broker
from echoless.broker.clock import CONFIRMATION_MS
from echoless.broker.config.advertised import Advertised
from echoless.broker.config.loading import Address, Config
from echoless.broker.config.topic import to_log_config
from echoless.broker.environment import Environment
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.network.request import Peer, Request
from echoless.broker.partitions.partition import Partition
from echoless.broker.records.append import StoredBatch
from echoless.broker.records.in_flight import ACKS_ALL, Encoding, InFlightProduce
from echoless.broker.records.produce import produce_batch
from echoless.broker.replication.peers import TcpPeers
from echoless.broker.tree.node_tree import NodeTree
from echoless.protocol.dedup import Duplicate, Reject, UnknownProducerId
from echoless.protocol.produce import encode_produce_response, encode_produced
from echoless.protocol.record_batch import read_header
from echoless.storage.appended import Appended
from echoless.storage.log import Log
from echoless.storage.opening import LogOpening
from tests.fakes.memory_file_system import MemoryFileSystem, keep_all
from tests.fakes.memory_node_tree import MemoryTree
from tests.storage.log_workload import make_batch
from tests.storage.one_log import NOW_MS

ENDPOINTS = {
    name: Advertised(Address("127.0.0.1", port)) for name, port in (("PLAINTEXT", 1), ("NATIVE", 2))
}
STAND_ALONE, CLUSTER = "embedded", "zookeeper://memory"
HOUR_MS = 3_600_000
REQUEST = Request(0, 9, 1, "test", None, Peer(1, "10.0.0.1:5000"))
WRAP = 2**31 - 8
"""The first sequence of a run that goes across the wrap."""


class Host:
    """One broker at a time, on a disk and a coordinator that outlive it."""

    def __init__(self, coordinator: str, **settings: Any) -> None:
        self.server = MemoryTree()
        self.disk = MemoryFileSystem()
        self.wall_ms = NOW_MS
        self.up_ms = 77_000
        self.config = Config(data_dir="/data", coordinator=coordinator, **settings)
        self.broker: Broker | None = None

    async def start(self) -> Broker:
        """Starts a broker; the one before has to be gone."""
        self.broker = new_broker(self.config, self.environment())
        await self.broker.start(ENDPOINTS)
        return self.broker

    def environment(self) -> Environment:
        """The world of the next broker."""
        tree = self._tree = self.server.connect()
        tree.session_timeout_s = 10.0

        async def open_tree(_config: Config) -> NodeTree:
            return tree

        rng = random.Random(1)
        return Environment(
            file_system=self.disk,
            open_tree=open_tree,
            open_peers=TcpPeers,
            now_ms=lambda: self.wall_ms,
            monotonic_ms=lambda: self.up_ms,
            rng=rng,
            new_uuid=lambda: uuid.UUID(int=rng.getrandbits(128)),
        )

    async def led(self, topic: str) -> Partition:
        """The topic's only partition, once it is led here."""
        assert self.broker is not None
        while not (partition := self.broker.services.partitions.find(topic, 0)).is_leader:
            await self._tree.children("/brokers")  # a turn for the others
        return partition

    async def restart(self, *, is_clean: bool) -> None:
        """Ends the broker, by SIGTERM or SIGKILL, and starts another on what the disk then holds."""
        await self.end(is_clean=is_clean)
        await self.start()

    async def end(self, *, is_clean: bool) -> None:
        """Ends the broker, by SIGTERM or SIGKILL."""
        assert self.broker is not None
        killed = self.disk.after_power_loss(keep_all)
        if not is_clean:
            self._tree.cut_off()  # a killed broker changes no nodes either, while this one ends
        await self.broker.stop()
        if not is_clean:
            self.disk = killed

    def run(self, for_ms: int) -> None:
        """Time passes."""
        self.wall_ms += for_ms
        self.up_ms += for_ms

    async def produce(self, sequence: int, *, producer_id: int = 1) -> int:
        """Sends one batch of one record to `orders`, whose offset is answered."""
        assert self.broker is not None
        await self.led("orders")
        batch = make_batch(producer_id=producer_id, epoch=0, sequence=sequence, timestamp=NOW_MS)
        parts, encoding = (
            self.broker.services.produce,
            Encoding(encode_produced, encode_produce_response),
        )
        flight = InFlightProduce(parts, REQUEST, ACKS_ALL, 0, encoding)
        outcome = produce_batch(flight, "orders", 0, batch)
        assert isinstance(outcome, StoredBatch), outcome
        return outcome.produced.base_offset

    async def keep_house(self) -> None:
        """Runs the broker's periodic housekeeping."""
        assert self.broker is not None
        await self.broker.housekeeping.round()


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
@pytest.mark.parametrize("is_of_topic", [True, False])
async def test_a_wider_window_is_whole_after_every_restart(
    coordinator: str, first: int, *, is_clean: bool, is_of_topic: bool
) -> None:
    """`producer.state.batches.to.retain` of a topic counts from the moment its log is opened.

    So does that of all brokers which was changed while they ran.
    """
    host = Host(coordinator, unknown_producer_id=UnknownProducerId.ACCEPT)
    broker = await host.start()
    window = {"producer.state.batches.to.retain": "20"}
    await broker.services.topics.create(
        NewTopic(name="orders", config=window if is_of_topic else {})
    )
    if not is_of_topic:
        await broker.settings.alter(of_all=True, edit=lambda _: window, validate_only=False)
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
    await broker.services.topics.create(NewTopic(name="orders", config=overrides))
    await host.led("orders")
    opened = []
    log_open = Log.open

    def open_log(opening: LogOpening) -> Log:
        opened.append((opening.directory, opening.config))
        return log_open(opening)

    monkeypatch.setattr(Log, "open", open_log)
    await host.restart(is_clean=True)
    assert opened == [("/data/orders-0", to_log_config(host.config, "orders", overrides))]
    assert host.broker is not None
    await host.broker.stop()


@pytest.mark.parametrize("coordinator", [STAND_ALONE, CLUSTER])
@pytest.mark.parametrize("steps_h", [(25,), (-25,), (25, -25), (-25, 25), (25, 25, -100, 200)])
async def test_a_step_of_the_wall_clock_makes_no_producer_unknown(
    coordinator: str, steps_h: tuple[int, ...]
) -> None:
    """Nor does a restart after each step: a repeat is answered with the original's offset."""
    host = Host(coordinator)
    broker = await host.start()
    await broker.services.topics.create(NewTopic(name="orders", config={"retention.ms": "-1"}))
    offsets = [await host.produce(sequence) for sequence in range(5)]
    for is_clean in (None, True, False):
        for step_h in steps_h:
            host.wall_ms += step_h * HOUR_MS
            await host.keep_house()
            assert await host.produce(4) == offsets[4]
            host.run(60_000)
            await host.keep_house()
            if is_clean is not None:
                await host.restart(is_clean=is_clean)
        assert [await host.produce(sequence) for sequence in range(5)] == offsets
    assert host.broker is not None
    await host.broker.stop()


async def test_a_step_of_the_wall_clock_deletes_no_segments_at_once() -> None:
    """Eight days forward, with a retention of seven: what is there stays until the step has lasted."""
    host = Host(STAND_ALONE)
    broker = await host.start()
    await broker.services.topics.create(NewTopic(name="orders", config={"segment.bytes": "300"}))
    for sequence in range(10):
        await host.produce(sequence)
    partition = await host.led("orders")
    partition.log.flush()
    host.wall_ms += 8 * 24 * HOUR_MS
    await host.keep_house()
    host.run(CONFIRMATION_MS - 1)
    await host.keep_house()
    await host.restart(is_clean=True)
    await host.keep_house()
    partition = await host.led("orders")
    assert partition.log.log_start_offset == 0
    host.run(CONFIRMATION_MS)
    await host.keep_house()
    assert partition.log.log_start_offset > 0
    assert host.broker is not None
    await host.broker.stop()


async def test_producers_expire_after_the_time_that_brokers_ran() -> None:
    """It holds across restarts too: the directory keeps its clock, which stops in between."""
    host = Host(STAND_ALONE, producer_id_expiration_ms=HOUR_MS)
    broker = await host.start()
    await broker.services.topics.create(NewTopic(name="orders"))
    await host.produce(0)
    await host.restart(is_clean=True)
    for _ in range(2):
        host.run(HOUR_MS // 2 - 60_000)
        await host.keep_house()
        host.wall_ms += 10 * HOUR_MS  # while no broker runs
        await host.restart(is_clean=True)
        await host.keep_house()
        assert len((await host.led("orders")).log.producers) == 1
    host.run(3 * 60_000)
    await host.keep_house()
    assert len((await host.led("orders")).log.producers) == 0
    assert host.broker is not None
    await host.broker.stop()
