"""Producer ids: unique whatever happens, and there at once."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.broker.metadata.producer_id_block import (
    PATH,
    PRODUCER_ID_MAX,
    ProducerIdBlock,
    ProducerIdBlockError,
)
from echoless.broker.metadata.producer_ids import CLAIM_ATTEMPTS_MAX, ProducerIds
from echoless.broker.tree.node_tree import ConnectionLostError, NodeTree
from echoless.protocol.errors import ErrorCode, KafkaError
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree


@pytest.fixture
def server() -> MemoryTree:
    return MemoryTree()


@pytest.fixture
def tree(server: MemoryTree) -> MemoryNodeTree:
    return server.connect()


@pytest.fixture
def other(server: MemoryTree) -> MemoryNodeTree:
    return server.connect()


async def block_of(tree: NodeTree) -> tuple[int, int, int]:
    """Broker, start and end of the block in the node."""
    return ProducerIdBlock.decode((await tree.read(PATH)).data)


async def store_block(tree: NodeTree, end: int) -> None:
    await tree.create(PATH, ProducerIdBlock(9, 0, end).encode())


async def test_the_node_is_kafkas(tree: MemoryNodeTree) -> None:
    """Inclusive ends as decimal strings, byte for byte."""
    await ProducerIds(tree, broker_id=1).start()
    assert (await tree.read(PATH)).data == (
        b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
    )


async def test_the_first_id_is_there_at_once(tree: MemoryNodeTree) -> None:
    """After `start` no request waits for the tree."""
    ids = ProducerIds(tree, broker_id=1)
    await ids.start()
    assert ids.next_producer_id() == 0


async def test_a_block_goes_on_behind_the_last_one(tree: MemoryNodeTree) -> None:
    """It does not matter who claimed the last block, nor its size."""
    await store_block(tree, end=4999)
    ids = ProducerIds(tree, broker_id=35)
    await ids.start()
    assert ids.next_producer_id() == 5000
    assert await block_of(tree) == (35, 5000, 5999)


async def test_left_ids_are_never_issued(tree: MemoryNodeTree) -> None:
    """Each id issued after `leave_block` is above every block claimed before, also while a claim is on its way."""
    ids = ProducerIds(tree, broker_id=1, block_size=10)
    await ids.start()
    assert ids.next_producer_id() == 0
    ids.leave_block()
    assert ids.next_producer_id() is None
    write = tree.write

    async def leaving(path: str, data: bytes, version: int) -> int:
        tree.write = write  # type: ignore[method-assign]
        written = await write(path, data, version)
        ids.leave_block()
        return written

    tree.write = leaving  # type: ignore[method-assign]
    assert await ids.wait_for_producer_id() == 20


async def test_a_node_without_data_means_the_first_block(tree: MemoryNodeTree) -> None:
    """Kafka creates the node empty when it starts."""
    await tree.create(PATH, b"")
    ids = ProducerIds(tree, broker_id=1)
    assert await ids.wait_for_producer_id() == 0


async def test_ids_are_consecutive_across_blocks_and_never_wait(tree: MemoryNodeTree) -> None:
    """The next block is claimed while half of the present one is left."""
    ids = ProducerIds(tree, broker_id=1, block_size=10)
    await ids.start()
    taken = []
    for _ in range(100):
        taken.append(ids.next_producer_id())
        await asyncio.sleep(0)
    assert taken == list(range(100))


async def test_no_block_is_claimed_before_it_is_needed(tree: MemoryNodeTree) -> None:
    """A restart wastes what is left of a block, so only one is claimed at the start."""
    ids = ProducerIds(tree, broker_id=1, block_size=10)
    await ids.start()
    for _ in range(4):
        ids.next_producer_id()
    await asyncio.sleep(0.0)
    assert await block_of(tree) == (1, 0, 9)


async def test_more_requests_than_ids_wait_for_one_claim_at_a_time(tree: MemoryNodeTree) -> None:
    """Everyone who waits gets a separate id."""
    ids = ProducerIds(tree, broker_id=1, block_size=3)
    taken = await asyncio.gather(*(ids.wait_for_producer_id() for _ in range(20)))
    assert sorted(taken) == list(range(20))


async def test_blocks_of_one(tree: MemoryNodeTree) -> None:
    """The smallest block size works like any other."""
    ids = ProducerIds(tree, broker_id=1, block_size=1)
    assert [await ids.wait_for_producer_id() for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_a_lost_race_starts_again_from_the_read(
    tree: MemoryNodeTree, other: MemoryNodeTree
) -> None:
    """The rival keeps its block; ours comes after it."""
    await store_block(tree, end=9)
    rival = ProducerIds(other, broker_id=2, block_size=10)
    tree.before_next_change(rival.start)
    ids = ProducerIds(tree, broker_id=1, block_size=10)
    assert await ids.wait_for_producer_id() == 20
    assert rival.next_producer_id() == 10


async def test_a_lost_race_for_the_first_block(tree: MemoryNodeTree, other: MemoryNodeTree) -> None:
    """Two brokers that both find no node do not both create it."""
    rival = ProducerIds(other, broker_id=2, block_size=10)
    tree.before_next_change(rival.start)
    ids = ProducerIds(tree, broker_id=1, block_size=10)
    assert await ids.wait_for_producer_id() == 10
    assert rival.next_producer_id() == 0


@pytest.mark.parametrize(("applied", "first_id"), [(True, 10), (False, 0)])
@pytest.mark.parametrize("is_there", [True, False])
async def test_a_lost_reply_costs_at_most_a_block(
    tree: MemoryNodeTree, applied: bool, first_id: int, is_there: bool
) -> None:
    """Whether the write was applied is not checked: another block is claimed."""
    if is_there:
        await tree.create(PATH)
    tree.lose_next_reply(applied=applied)
    ids = ProducerIds(tree, broker_id=1, block_size=10)
    assert await ids.wait_for_producer_id() == first_id


async def test_without_a_connection_the_client_may_try_again(tree: MemoryNodeTree) -> None:
    """The answer is retriable, and once the tree is back there are ids again."""
    ids = ProducerIds(tree, broker_id=1)
    tree.suspend()
    with pytest.raises(KafkaError) as failure:
        await ids.wait_for_producer_id()
    assert failure.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(ConnectionLostError):
        await ids.start()
    tree.resume()
    assert await ids.wait_for_producer_id() == 0


async def test_races_are_not_lost_for_ever(tree: MemoryNodeTree, other: MemoryNodeTree) -> None:
    """After a hundred lost races the client gets a retriable error; ids are still unique then."""
    rival = ProducerIds(other, broker_id=2, block_size=10)
    for _ in range(CLAIM_ATTEMPTS_MAX):
        tree.before_next_change(rival.start)
    ids = ProducerIds(tree, broker_id=1, block_size=10)
    with pytest.raises(KafkaError) as failure:
        await ids.wait_for_producer_id()
    assert failure.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await ids.wait_for_producer_id() == 10 * CLAIM_ATTEMPTS_MAX


async def test_ids_in_hand_need_no_connection(tree: MemoryNodeTree) -> None:
    """A block is ours whatever becomes of the session."""
    ids = ProducerIds(tree, broker_id=1, block_size=4)
    await ids.start()
    tree.expire_session()
    taken = []
    while (producer_id := ids.next_producer_id()) is not None:
        taken.append(producer_id)
        await asyncio.sleep(0)
    assert taken == [0, 1, 2, 3]


async def test_a_claim_ahead_that_failed_is_tried_again(tree: MemoryNodeTree) -> None:
    """A connection that comes back before the block is used up delays no one."""
    ids = ProducerIds(tree, broker_id=1, block_size=100)
    await ids.start()
    tree.suspend()
    taken = []
    for n in range(200):
        if n == 80:
            tree.resume()
        taken.append(ids.next_producer_id())
        for _ in range(10):
            await asyncio.sleep(0)
    assert taken == list(range(200))


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[" * 100_000,
        b"[]",
        b"7",
        b"\xff",
        b'{"version":1,"broker":1,"block_start":"0"}',
        b'{"version":1,"broker":1,"block_start":0,"block_end":999}',
        b'{"version":1,"broker":1,"block_start":"0","block_end":"9 99"}',
        b'{"version":1,"broker":1,"block_start":"0","block_end":"9_99"}',
        b'{"version":1,"broker":1,"block_start":"-1","block_end":"999"}',
        b'{"version":1,"broker":1,"block_start":"1000","block_end":"999"}',
        b'{"version":1,"broker":null,"block_start":"0","block_end":"999"}',
        b'{"version":1,"broker":1,"block_start":"0","block_end":"9223372036854775808"}',
    ],
)
async def test_data_that_makes_no_sense_stops_loudly(tree: MemoryNodeTree, data: bytes) -> None:
    """Node and content are named, and the node is left as it is for the operator."""
    await tree.create(PATH, data)
    with pytest.raises(ProducerIdBlockError) as failure:
        await ProducerIds(tree, broker_id=1).start()
    assert PATH in str(failure.value)
    assert str(data) in str(failure.value)
    assert await tree.read(PATH) == (data, 0, 0)


async def test_any_version_and_further_fields_are_read(tree: MemoryNodeTree) -> None:
    """As in Kafka, the version is written and not checked."""
    fields = {"version": 2, "broker": 1, "block_start": "0", "block_end": "9", "new": True}
    await tree.create(PATH, json.dumps(fields).encode())
    assert await ProducerIds(tree, broker_id=1).wait_for_producer_id() == 10


async def test_the_last_block_ends_at_the_largest_id(tree: MemoryNodeTree) -> None:
    """2**63 - 1 is issued, and nothing after it: that is fatal, permanently."""
    await store_block(tree, end=PRODUCER_ID_MAX - 2)
    ids = ProducerIds(tree, broker_id=1, block_size=2)
    assert [await ids.wait_for_producer_id() for _ in range(2)] == [
        PRODUCER_ID_MAX - 1,
        PRODUCER_ID_MAX,
    ]
    for _ in range(2):
        with pytest.raises(ProducerIdBlockError, match="used up"):
            await ids.wait_for_producer_id()


async def test_too_few_ids_for_a_block_are_none(tree: MemoryNodeTree) -> None:
    """As in Kafka, a block is whole or not claimed."""
    await store_block(tree, end=PRODUCER_ID_MAX - 999)
    with pytest.raises(ProducerIdBlockError, match="used up"):
        await ProducerIds(tree, broker_id=1).start()


@pytest.mark.parametrize("goes_back", ["deleted", "overwritten"])
async def test_a_node_that_went_back_stops_the_ids(tree: MemoryNodeTree, goes_back: str) -> None:
    """Ids would repeat, so the broker hands out what it has and then no more."""
    ids = ProducerIds(tree, broker_id=1, block_size=2)
    await ids.start()
    if goes_back == "deleted":
        await tree.delete(PATH)
    else:
        await tree.write(PATH, b"", 0)
    assert [await ids.wait_for_producer_id() for _ in range(2)] == [0, 1]
    with pytest.raises(ProducerIdBlockError, match="went back"):
        await ids.wait_for_producer_id()


async def test_closing_ends_a_claim_under_way(tree: MemoryNodeTree) -> None:
    """No task is left over."""
    ids = ProducerIds(tree, broker_id=1, block_size=2)
    await ids.start()
    ids.next_producer_id()
    await ids.close()
    assert len(asyncio.all_tasks()) == 1


@dataclass
class Cluster:
    """Brokers on one tree, and every id that any of them ever handed out."""

    block_size: int
    server: MemoryTree = field(default_factory=MemoryTree)
    clients: list[MemoryNodeTree] = field(default_factory=list)
    brokers: list[ProducerIds] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    requests: set[asyncio.Task[None]] = field(default_factory=set)

    def start_broker(self, index: int) -> None:
        """Starts the broker, after a crash too: what it had in hand is forgotten."""
        client = self.server.connect()
        broker = ProducerIds(client, index, self.block_size)
        if index == len(self.brokers):
            self.clients.append(client)
            self.brokers.append(broker)
        else:
            self.clients[index].expire_session()
            self.clients[index], self.brokers[index] = client, broker

    async def step(self, verb: str, index: int, argument: int) -> None:
        """One step of a program."""
        match verb:
            case "request":
                broker = self.brokers[index]
                self.requests |= {asyncio.create_task(self._take(broker)) for _ in range(argument)}
            case "lose":
                self.clients[index].lose_next_reply(applied=argument % 2 == 1)
            case "crash":
                self.start_broker(index)
            case "wait":
                for _ in range(argument):
                    await asyncio.sleep(0)

    async def _take(self, broker: ProducerIds) -> None:
        try:
            self.taken.append(await broker.wait_for_producer_id())
        except KafkaError as error:
            assert error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # noqa: PT017 - rare, not sure


BROKERS = 3
VERBS = ["request", "request", "lose", "crash", "wait"]
steps = st.tuples(st.sampled_from(VERBS), st.integers(0, BROKERS - 1), st.integers(1, 8))


async def run(block_size: int, program: list[tuple[str, int, int]]) -> list[int]:
    """All ids that were handed out."""
    cluster = Cluster(block_size)
    for index in range(BROKERS):
        cluster.start_broker(index)
    for step in program:
        await cluster.step(*step)
    await asyncio.gather(*cluster.requests)
    for broker in cluster.brokers:
        await broker.close()
    return cluster.taken


@pytest.mark.slow
@given(block_size=st.integers(1, 5), program=st.lists(steps, max_size=40))
@settings(max_examples=150, deadline=None)
def test_no_id_is_handed_out_twice(block_size: int, program: list[tuple[str, int, int]]) -> None:
    """Any brokers may race, any answers be lost and any broker crash in the middle."""
    taken = asyncio.run(run(block_size, program))
    assert len(set(taken)) == len(taken)
