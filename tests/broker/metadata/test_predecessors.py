"""A deleted topic leaves something for one of the same name: which producers may go on in it."""

from __future__ import annotations

import pytest

from echoless.broker.metadata import predecessors
from echoless.broker.metadata.node_data import (
    TOPIC_PREDECESSORS,
    NodeDataError,
    Predecessor,
    decode_predecessor,
    topic_id_path,
    topic_predecessor_path,
)
from echoless.broker.metadata.producer_id_block import PATH, ProducerIdBlock
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.metadata.topic_registry import TopicRegistry
from tests.broker.metadata.registries import loaded, server_with_brokers
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree


@pytest.fixture
async def server() -> MemoryTree:
    """A tree with brokers, and a first block of producer ids."""
    server = await server_with_brokers()
    await server.connect().create(PATH, ProducerIdBlock(1, 0, 999).encode())
    return server


@pytest.fixture
def tree(server: MemoryTree) -> MemoryNodeTree:
    return server.connect()


@pytest.fixture
async def registry(tree: MemoryNodeTree) -> TopicRegistry:
    return await loaded(tree)


async def claim(tree: MemoryNodeTree, end: int) -> None:
    """Claims the ids up to `end`."""
    version = (await tree.read(PATH)).version
    await tree.write(PATH, ProducerIdBlock(1, end - 9, end).encode(), version)


async def test_a_new_topic_knows_its_predecessor_on_every_broker(
    server: MemoryTree, tree: MemoryNodeTree, registry: TopicRegistry
) -> None:
    """How many partitions it had, and which producer ids there were when it was deleted, not created."""
    assert (await registry.create_topic(NewTopic(name="t", partitions=3))).predecessor is None
    await registry.delete_topic("t")
    await claim(tree, 5999)
    again = await registry.create_topic(NewTopic(name="t", partitions=8))
    assert again.predecessor == Predecessor(last_producer_id=999, partitions=3)
    elsewhere = await loaded(server.connect())
    assert elsewhere.topics["t"] == again
    assert await tree.children(TOPIC_PREDECESSORS) == []


async def test_the_newest_deletion_counts(tree: MemoryNodeTree, registry: TopicRegistry) -> None:
    """Each one knows later producers."""
    for end in (1999, 2999):
        await registry.create_topic(NewTopic(name="t"))
        await claim(tree, end)
        await registry.delete_topic("t")
    again = await registry.create_topic(NewTopic(name="t"))
    assert again.predecessor == Predecessor(2999, 1)


async def test_other_topics_know_nothing_of_it(registry: TopicRegistry) -> None:
    """A topic that is the first of its name has no predecessor."""
    await registry.create_topic(NewTopic(name="t"))
    await registry.delete_topic("t")
    assert (await registry.create_topic(NewTopic(name="u"))).predecessor is None


async def test_brokers_of_earlier_versions_create_and_delete_as_ever(
    tree: MemoryNodeTree, registry: TopicRegistry
) -> None:
    """They make an empty id node, and leave what a deletion noted; the next deletion notes it anew."""
    await registry.create_topic(NewTopic(name="t"))
    await registry.delete_topic("t")
    path = topic_predecessor_path("t")
    left = (await tree.read(path)).data
    await tree.delete(path)
    created = await registry.create_topic(NewTopic(name="t"))
    assert (await tree.read(topic_id_path("t", created.topic_id))).data == b""
    await tree.create(path, left)
    await claim(tree, 1999)
    await registry.delete_topic("t")
    assert decode_predecessor(path, (await tree.read(path)).data) == Predecessor(1999, 1)


async def test_a_deletion_needs_neither_producer_ids_nor_the_parent(
    registry: TopicRegistry,
) -> None:
    """A tree in which no id was issued, or that lost the parent, is no reason to refuse it."""
    server = await server_with_brokers()
    tree = server.connect()
    without_ids = await loaded(tree)
    await without_ids.create_topic(NewTopic(name="t"))
    await without_ids.delete_topic("t")
    assert await tree.children(TOPIC_PREDECESSORS) == []
    await tree.create(PATH, ProducerIdBlock(1, 0, 999).encode())
    await tree.delete(TOPIC_PREDECESSORS)
    await without_ids.create_topic(NewTopic(name="t"))
    await without_ids.delete_topic("t")
    assert (await without_ids.create_topic(NewTopic(name="t"))).predecessor is None


async def test_the_oldest_deletions_are_forgotten(
    monkeypatch: pytest.MonkeyPatch, tree: MemoryNodeTree, registry: TopicRegistry
) -> None:
    """Their number is bounded, while a broker runs and when one starts."""
    monkeypatch.setattr(predecessors, "PREDECESSORS_MAX", 3)
    monkeypatch.setattr(predecessors, "CHECKED_AFTER", 5)
    for number in range(7):
        await registry.create_topic(NewTopic(name=f"t{number}"))
        await claim(tree, 1999 + number)
        await registry.delete_topic(f"t{number}")
    assert await tree.children(TOPIC_PREDECESSORS) == ["t2", "t3", "t4", "t5", "t6"]
    await loaded(tree)
    assert await tree.children(TOPIC_PREDECESSORS) == ["t4", "t5", "t6"]


@pytest.mark.parametrize("data", [b"{", b"{}", b'{"last_producer_id":"x","partitions":1}', b"[]"])
def test_data_without_sense_is_named(data: bytes) -> None:
    """The message names the node."""
    with pytest.raises(NodeDataError, match="/admin/deleted_topics/t"):
        decode_predecessor(topic_predecessor_path("t"), data)
