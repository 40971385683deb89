"""Producer ids out of one ZooKeeper: among our brokers, and together with Kafka's."""

from __future__ import annotations

import asyncio
import datetime
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from echoless.broker.config.loading import Config
from echoless.broker.metadata.producer_id_block import PATH, ProducerIdBlock
from echoless.broker.metadata.producer_ids import ProducerIds
from echoless.broker.tree.zookeeper import ZooKeeperNodeTree
from echoless.protocol.errors import ErrorCode, KafkaError
from tests.support.raw_client import RawConnection
from tests.support.tcp_proxy import TcpProxy
from tests.support.zookeeper import ZooKeeper
from tests.support.zookeeper_kafka import ZooKeeperKafka
from tests.toolchain import require

pytestmark = pytest.mark.cluster

OUR_BROKER, KAFKAS_BROKER = 7, 1
BLOCK_SIZE: Final = 5
"""Small, so that we claim all the time and Kafka's every claim meets one of ours."""
KAFKAS_BLOCK_SIZE: Final = 1000
KAFKAS_BLOCKS: Final = 5
KAFKAS_CONNECTIONS: Final = 4
OpenTree = Callable[[str], Awaitable[ZooKeeperNodeTree]]


@pytest.fixture
async def open_tree() -> AsyncIterator[OpenTree]:
    """A function that opens trees; all are closed when the test ends."""
    trees: list[ZooKeeperNodeTree] = []

    async def open_one(hosts: str) -> ZooKeeperNodeTree:
        trees.append(await ZooKeeperNodeTree.open(Config(coordinator=f"zookeeper://{hosts}")))
        return trees[-1]

    yield open_one
    for tree in trees:
        await tree.close()


async def take(ids: ProducerIds, count: int) -> list[int]:
    """Takes ids as a broker does for InitProducerId.

    The client retries while no block is available.
    """
    taken: list[int] = []
    while len(taken) < count:
        try:
            taken.append(await ids.wait_for_producer_id())
        except KafkaError as error:
            assert error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # noqa: PT017
    return taken


async def test_five_brokers_claim_at_once(zookeeper: ZooKeeper, open_tree: OpenTree) -> None:
    """Every id goes to one of them, and no block is skipped or claimed twice."""
    hosts = zookeeper.fresh_hosts()
    trees = [await open_tree(hosts) for _ in range(5)]
    brokers = [ProducerIds(tree, broker_id, 10) for broker_id, tree in enumerate(trees)]
    taken = await asyncio.gather(*(take(broker, 300) for broker in brokers))
    everything = sorted(itertools.chain(*taken))
    assert len(set(everything)) == 5 * 300
    last = ProducerIdBlock.decode((await trees[0].read(PATH)).data).end
    # Each broker has part of one block left, and perhaps a whole one that was claimed ahead.
    assert everything[-1] <= last < 5 * (300 + 2 * 10)
    for broker in brokers:
        await broker.close()


async def test_lost_answers_cost_blocks_and_never_repeat_an_id(
    zookeeper: ZooKeeper, open_tree: OpenTree
) -> None:
    """A claim whose answer is lost is abandoned: its block is between two that are used."""
    async with TcpProxy.open(zookeeper.port) as proxy:
        chroot = zookeeper.fresh_hosts().partition("/")[2]
        tree = await open_tree(f"{proxy.address}/{chroot}")
        other = ProducerIds(await open_tree(zookeeper.hosts(f"/{chroot}")), 2, 10)
        ours = ProducerIds(tree, OUR_BROKER, 10)
        taken = await take(ours, 3)
        for _ in range(3):
            proxy.answers_lost.clear()
            proxy.loses_answers = True
            taking = asyncio.ensure_future(take(ours, 20))
            await proxy.answers_lost.wait()
            taken += await take(other, 10)
            await proxy.cut()
            proxy.loses_answers = False
            taken += await taking
        assert len(set(taken)) == 3 + 3 * 30
        await ours.close()
        await other.close()


@pytest.fixture
def kafka(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[tuple[ZooKeeperKafka, str]]:
    """Apache Kafka, and where in ZooKeeper it lives."""
    require("kafka")
    hosts = zookeeper.fresh_hosts()
    kafka = ZooKeeperKafka(tmp_path, hosts, KAFKAS_BROKER)
    kafka.start()
    yield kafka, hosts
    kafka.kill()


async def take_from_kafka(address: str, count: int) -> list[int]:
    """Through real InitProducerId requests, on several connections."""

    async def take_some() -> list[int]:
        connection = await RawConnection.open(address)
        ids = [await init_producer_id(connection) for _ in range(count // KAFKAS_CONNECTIONS)]
        await connection.close()
        return ids

    shares = await asyncio.gather(*(take_some() for _ in range(KAFKAS_CONNECTIONS)))
    return list(itertools.chain(*shares))


async def init_producer_id(connection: RawConnection) -> int:
    while True:
        response = await connection.call(
            "init_producer_id",
            1,
            transactional_id=None,
            transaction_timeout=datetime.timedelta(minutes=1),
        )
        if response.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            assert response.error_code == ErrorCode.NONE
            return int(response.producer_id)


@pytest.mark.kafka
async def test_kafka_and_we_share_one_node(
    kafka: tuple[ZooKeeperKafka, str], open_tree: OpenTree
) -> None:
    """Both claim at the same time, each on top of the other's blocks: all ids are distinct."""
    server, hosts = kafka
    tree = await open_tree(hosts)
    ours = ProducerIds(tree, OUR_BROKER, BLOCK_SIZE)
    taking = asyncio.ensure_future(
        take_from_kafka(server.address, KAFKAS_BLOCKS * KAFKAS_BLOCK_SIZE)
    )
    our_ids = await take(ours, BLOCK_SIZE)
    while not taking.done():
        our_ids += await take(ours, BLOCK_SIZE)
    kafkas_ids = await taking
    assert len(kafkas_ids) == KAFKAS_BLOCKS * KAFKAS_BLOCK_SIZE
    assert len({*our_ids, *kafkas_ids}) == len(our_ids) + len(kafkas_ids)
    owners = [owner for owner, _ in itertools.groupby(owners_in_order(our_ids, kafkas_ids))]
    assert owners.count(KAFKAS_BROKER) >= KAFKAS_BLOCKS - 1
    await ours.close()


def owners_in_order(our_ids: list[int], kafkas_ids: list[int]) -> list[int]:
    """The owner of each id, from the lowest to the highest."""
    ours = [(producer_id, OUR_BROKER) for producer_id in our_ids]
    kafkas = [(producer_id, KAFKAS_BROKER) for producer_id in kafkas_ids]
    return [owner for _, owner in sorted(ours + kafkas)]
