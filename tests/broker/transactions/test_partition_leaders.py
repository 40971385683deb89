"""Who leads a partition of a transaction, and the proof that it is gone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from echoless.broker.metadata.node_data import NO_LEADER
from echoless.broker.metadata.topic import NewTopic, StateChange
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.transactions.partition_leaders import UNKNOWN_TOPIC, PartitionLeaders
from echoless.broker.tree.node_tree import ConnectionLostError
from echoless.protocol.state_records.transaction_records import NO_TOPIC_ID, TransactionPartition
from tests.broker.metadata.registries import loaded, server_with_brokers
from tests.fakes.memory_node_tree import MemoryNodeTree


class Looking:
    """A registry over a tree, and brokers 1 and 2."""

    def __init__(self, tree: MemoryNodeTree, registry: TopicRegistry) -> None:
        self.tree, self.registry = tree, registry
        self.brokers: dict[int, None] = {1: None, 2: None}
        cluster: Any = SimpleNamespace(brokers=self.brokers)
        self.leaders = PartitionLeaders(tree, registry, cluster)

    async def create(self) -> TransactionPartition:
        topic = await self.registry.create_topic(NewTopic("t", assignment={0: (1, 2)}))
        return TransactionPartition("t", 0, topic.topic_id.bytes)

    async def lead(self, leader: int) -> None:
        before = self.registry.topics["t"].states[0]
        after = before._replace(leader=leader, leader_epoch=before.leader_epoch + 1)
        await self.registry.change_states([StateChange("t", 0, before, after)])


@pytest.fixture
async def one() -> Looking:
    tree = (await server_with_brokers((1, 2))).connect()
    return Looking(tree, await loaded(tree))


async def test_a_partition_goes_to_its_leader_of_now(one: Looking) -> None:
    """If that is there; by the topic's id, or by its name in a record of Kafka's."""
    partition = await one.create()
    by_name = partition._replace(topic_id=NO_TOPIC_ID)
    for leader in (2, 1):
        await one.lead(leader)
        assert one.leaders.leader_of(partition) == one.leaders.leader_of(by_name) == leader
    del one.brokers[1]
    assert one.leaders.leader_of(partition) == NO_LEADER
    assert one.leaders.leader_of(partition._replace(partition=1)) == NO_LEADER
    assert one.leaders.leader_of(partition._replace(topic_id=bytes(15) + b"x")) == UNKNOWN_TOPIC
    assert one.leaders.leader_of(by_name._replace(topic="u")) == UNKNOWN_TOPIC


async def test_a_topic_is_gone_once_the_tree_says_so(one: Looking) -> None:
    """And stays gone when another one has its name; without an id that is the same topic."""
    partition = await one.create()
    by_name = partition._replace(topic_id=NO_TOPIC_ID)
    assert not await one.leaders.is_deleted(partition)
    assert not await one.leaders.is_deleted(by_name)
    deleted = await one.registry.delete_topic("t")
    assert await one.leaders.is_deleted(partition)
    assert await one.leaders.is_deleted(by_name)
    await one.registry.finish_deletion(deleted)
    assert await one.leaders.is_deleted(partition)
    reborn = await one.create()
    assert reborn != partition
    assert await one.leaders.is_deleted(partition)
    assert not await one.leaders.is_deleted(reborn)
    assert not await one.leaders.is_deleted(by_name)


async def test_what_the_tree_cannot_say_is_not_known(one: Looking) -> None:
    """A tree that is away is no proof."""
    partition = await one.create()
    one.tree.cut_off()
    with pytest.raises(ConnectionLostError):
        await one.leaders.is_deleted(partition)
