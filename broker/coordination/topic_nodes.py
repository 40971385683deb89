"""Topics as nodes: reading them, and the operations that create, extend and delete them.

A change of a few partitions is one atomic multi-operation. ZooKeeper takes about 1 MB in one, so a
big change is several, each at most `OPERATIONS_MAX` long, in an order that a crash cannot hurt:

Creation and new partitions:
1. the topic node, its configuration and the first partitions' states;
2. more partitions' states, and so on. After a crash the topic exists with partitions that were never
   led; their leader gives them a state when it starts (`TopicRegistry.claim_leadership`).

Deletion:
1. a node below `/admin/delete_topics`, and the first partitions go;
2. more partitions, and so on;
3. the last ones, the topic, its configuration, and the node of step 1. After a crash `load` finds
   that node and goes on.

Knows nothing of rules (`topic_registry.py`) and of JSON (`node_data.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from broker.coordination.lost_replies import commit
from broker.coordination.node_data import (
    TOPIC_CONFIGS,
    TOPIC_DELETIONS,
    TOPICS,
    PartitionState,
    decode_config,
    decode_partition_state,
    decode_topic,
    encode_config,
    encode_partition_state,
    encode_topic,
    partition_path,
    partition_state_path,
    partitions_path,
    topic_config_path,
    topic_deletion_path,
    topic_path,
)
from broker.coordination.node_tree import (
    Check,
    Create,
    Delete,
    Node,
    NodeTree,
    NoNodeError,
    Operation,
    Write,
    ensure_paths,
)
from broker.coordination.topic import NO_NODE, Topic

OPERATIONS_MAX: Final = 1000
"""In one multi-operation; about 200 bytes each."""


async def ensure_topic_paths(tree: NodeTree) -> None:
    """Creates the parents of everything here."""
    await ensure_paths(tree, [TOPICS, TOPIC_CONFIGS, TOPIC_DELETIONS])


async def read_topic_names(tree: NodeTree) -> list[str]:
    """All topics, sorted."""
    return await tree.children(TOPICS)


async def read_topics(tree: NodeTree, names: Sequence[str]) -> dict[str, Topic]:
    """Those of the named topics that exist. Raises `NodeDataError`."""
    nodes = await tree.read_many([topic_path(name) for name in names])
    configs = await tree.read_many([topic_config_path(name) for name in names])
    topics = {
        name: _read_topic(name, node, config)
        for name, node, config in zip(names, nodes, configs, strict=True)
        if node is not None
    }
    pairs = [(name, partition) for name, topic in topics.items() for partition in topic.assignment]
    states = await _read_states(tree, pairs)
    return {
        name: replace(
            topic,
            states={
                partition: states[name, partition]
                for partition in topic.assignment
                if (name, partition) in states
            },
        )
        for name, topic in topics.items()
    }


def _read_topic(name: str, node: Node, config: Node | None) -> Topic:
    topic_id, assignment = decode_topic(topic_path(name), node.data)
    return Topic(
        name=name,
        topic_id=topic_id,
        assignment=assignment,
        states={},
        config=decode_config(topic_config_path(name), config.data) if config else {},
        node_version=node.version,
        config_version=config.version if config else NO_NODE,
    )


async def _read_states(
    tree: NodeTree, pairs: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], PartitionState]:
    paths = [partition_state_path(name, partition) for name, partition in pairs]
    nodes = await tree.read_many(paths)
    return {
        pair: decode_partition_state(path, node)
        for pair, path, node in zip(pairs, paths, nodes, strict=True)
        if node is not None
    }


def create_operations(topic: Topic) -> Iterator[Operation]:
    """A new topic. `config_version` says whether a configuration was there before it."""
    yield Create(topic_path(topic.name), encode_topic(topic.topic_id, topic.assignment))
    yield config_operation(topic)
    yield Create(partitions_path(topic.name))
    yield from new_partition_operations(topic, topic.assignment)


def extend_operations(before: Topic, after: Topic) -> Iterator[Operation]:
    """More partitions for a topic."""
    data = encode_topic(after.topic_id, after.assignment)
    yield Write(topic_path(after.name), data, before.node_version)
    yield from new_partition_operations(after, range(before.partition_count, after.partition_count))


def new_partition_operations(topic: Topic, partitions: Iterable[int]) -> Iterator[Operation]:
    """The first state of partitions."""
    for partition in partitions:
        yield Create(partition_path(topic.name, partition))
        data = encode_partition_state(topic.states[partition])
        yield Create(partition_state_path(topic.name, partition), data)


def config_operation(topic: Topic) -> Operation:
    """The topic's configuration as it shall be, over the version that it had."""
    path, data = topic_config_path(topic.name), encode_config(topic.config)
    if topic.config_version == NO_NODE:
        return Create(path, data)
    return Write(path, data, topic.config_version)


def state_operations(before: Topic, after: Topic) -> Iterator[Operation]:
    """The states that differ: first ones are created, others written over the version before."""
    for partition, state in after.states.items():
        old = before.states.get(partition)
        if old == state:
            continue
        path, data = partition_state_path(after.name, partition), encode_partition_state(state)
        yield Create(path, data) if old is None else Write(path, data, old.node_version)


async def ensure_partition_paths(tree: NodeTree, before: Topic, after: Topic) -> None:
    """Creates the parents of first states; a crash, or Kafka, may have left some of them."""
    unled = after.states.keys() - before.states.keys()
    await ensure_paths(tree, [partition_path(after.name, partition) for partition in unled])


async def delete_topic_nodes(tree: NodeTree, topic: Topic) -> None:
    """Deletes a topic of exactly this version. Raises `MultiFailedError`."""
    begin: list[Operation] = [
        Check(topic_path(topic.name), topic.node_version),
        Create(topic_deletion_path(topic.name)),
    ]
    await commit_in_chunks(tree, [*begin, *await _delete_operations(tree, topic.name)])


async def finish_deletions(tree: NodeTree) -> None:
    """Completes what a crash has left half deleted."""
    for name in await tree.children(TOPIC_DELETIONS):
        await commit_in_chunks(tree, await _delete_operations(tree, name))


async def _delete_operations(tree: NodeTree, name: str) -> list[Operation]:
    """Deletes of all that is there of the topic, children first."""
    try:
        partitions = [int(child) for child in await tree.children(partitions_path(name))]
    except NoNodeError:
        partitions = []
    paths: list[str] = []
    for partition in partitions:
        paths += partition_state_path(name, partition), partition_path(name, partition)
    paths += partitions_path(name), topic_path(name), topic_config_path(name)
    nodes = await tree.read_many(paths)
    present = [path for path, node in zip(paths, nodes, strict=True) if node is not None]
    return [Delete(path) for path in [*present, topic_deletion_path(name)]]


async def commit_in_chunks(tree: NodeTree, operations: Iterable[Operation]) -> None:
    """One multi-operation if they fit, else several, in order. Raises `MultiFailedError`."""
    all_operations = list(operations)
    for start in range(0, len(all_operations), OPERATIONS_MAX):
        await commit(tree, all_operations[start : start + OPERATIONS_MAX])
