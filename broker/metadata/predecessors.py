"""Predecessors: deleted topics, as later ones of the same names know them.

Producers outlive topics: a client whose topic is deleted and created again goes on with the sequence numbers
that it had. Producer ids are issued in order, so the end of the newest block at the deletion tells those producers
from later ones, which can only begin at sequence 0.

A deletion leaves a node below `/admin/deleted_topics`, which the creation of a topic of that name takes over, in the
same operation, as data of the topic's id node: brokers of earlier versions ask that node only whether it exists, and
never rewrite it. At most `PREDECESSORS_MAX` deleted topics are remembered.

Called by `topic_registry.py`. Knows nothing of how a log uses it (`storage/log_config.py`).
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final, NamedTuple

from echoless.broker.metadata.node_data import (
    TOPIC_PREDECESSORS,
    Predecessor,
    decode_predecessor,
    encode_predecessor,
    topic_predecessor_path,
)
from echoless.broker.metadata.producer_id_block import PATH, last_id_of
from echoless.broker.metadata.topic import Topic
from echoless.broker.tree.node_tree import (
    BadVersionError,
    Create,
    Delete,
    NodeTree,
    NoNodeError,
    Operation,
    SetData,
)

PREDECESSORS_MAX: Final = 1000
"""Deleted topics that are remembered; those with the oldest producer ids are forgotten first."""
CHECKED_AFTER: Final = 100
"""Deletions by one broker after which it looks for more than that."""

logger = logging.getLogger(__name__)


class Taken(NamedTuple):
    """The predecessor that a creation takes over, and the operation that belongs to it."""

    predecessor: Predecessor
    operation: Operation


async def remember_operations(tree: NodeTree, topic: Topic) -> list[Operation]:
    """The operations that go with the deletion of the topic; none if no producer id was ever issued.

    Raises `CoordinationError`.
    """
    path = topic_predecessor_path(topic.name)
    block, parent, known = await tree.read_many([PATH, TOPIC_PREDECESSORS, path])
    last_id = last_id_of(block)
    if last_id < 0 or parent is None:
        return []
    data = encode_predecessor(Predecessor(last_id, topic.partition_count))
    return [Create(path, data) if known is None else SetData(path, data, known.version)]


async def take(tree: NodeTree, name: str) -> Taken | None:
    """Finds what a deletion has left for a new topic of this name. Raises `CoordinationError`."""
    path = topic_predecessor_path(name)
    node = (await tree.read_many([path]))[0]
    predecessor = None if node is None else decode_predecessor(path, node.data)
    if node is None or predecessor is None:
        return None
    return Taken(predecessor, Delete(path, node.version))


async def forget_surplus(tree: NodeTree) -> None:
    """Deletes what is more than `PREDECESSORS_MAX`. Raises `CoordinationError`."""
    names = await tree.children(TOPIC_PREDECESSORS)
    surplus = len(names) - PREDECESSORS_MAX
    if surplus <= 0:
        return
    nodes = await tree.read_many([topic_predecessor_path(name) for name in names])
    found = []
    for name, node in zip(names, nodes, strict=True):
        if node is not None:
            predecessor = decode_predecessor(topic_predecessor_path(name), node.data)
            last_id = -1 if predecessor is None else predecessor.last_producer_id
            found.append((last_id, name, node.version))
    for _, name, version in sorted(found)[:surplus]:
        with suppress(
            NoNodeError, BadVersionError
        ):  # another broker was faster, or it is in use again
            await tree.delete(topic_predecessor_path(name), version)
    logger.info(
        "forgot the producers of %d topics deleted long ago: if they go on in new topics of these names, "
        "they are refused as unknown",
        surplus,
    )
