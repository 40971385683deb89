"""Registries over the tree in memory, for the tests of this room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from echoless.broker.metadata.registration import BrokerInfo, register_broker
from echoless.broker.metadata.topic_registry import TopicRegistry
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree


async def server_with_brokers(
    ids: Iterable[int] = (1, 2, 3), racks: Mapping[int, str] | None = None
) -> MemoryTree:
    """A tree in which these brokers are alive, all in the session of the first client."""
    server = MemoryTree()
    tree = server.connect()
    for broker_id in ids:
        rack = (racks or {}).get(broker_id)
        info = BrokerInfo(broker_id=broker_id, endpoints={}, started_ms=0, rack=rack)
        await register_broker(tree, info)
    return server


async def loaded(tree: MemoryNodeTree) -> TopicRegistry:
    registry = TopicRegistry(tree, rng=Random(0))
    await registry.load()
    return registry


async def following(tree: MemoryNodeTree) -> TopicRegistry:
    registry = await loaded(tree)
    await registry.follow()
    return registry
