"""The id of the cluster: made by the first broker of all, the same for ever after."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from echoless.broker.metadata.node_data import (
    BROKERS,
    CLUSTER_ID,
    TOPIC_CONFIGS,
    TOPIC_DELETIONS,
    TOPICS,
    decode_cluster_id,
    encode_cluster_id,
    encode_uuid,
)
from echoless.broker.tree.node_tree import (
    ConnectionLostError,
    NodeExistsError,
    NodeTree,
    ensure_paths,
    parent_of,
)


async def read_or_create_cluster_id(
    tree: NodeTree, new_uuid: Callable[[], uuid.UUID] = uuid.uuid4
) -> str:
    """Returns 22 characters, as Kafka's. Raises `NodeDataError` for a node that cannot be read."""
    node = (await tree.read_many([CLUSTER_ID]))[0]
    if node is not None:
        return decode_cluster_id(node.data)
    # A tree without an id is new: creating all its permanent nodes at once costs one fsync, not
    # three.
    await ensure_paths(
        tree, [parent_of(CLUSTER_ID), BROKERS, TOPICS, TOPIC_CONFIGS, TOPIC_DELETIONS]
    )
    cluster_id = encode_uuid(new_uuid())
    try:
        await tree.create(CLUSTER_ID, encode_cluster_id(cluster_id))
    except (NodeExistsError, ConnectionLostError):
        # Another broker was first, or the answer was lost: what is there now is the cluster's id.
        node = (await tree.read_many([CLUSTER_ID]))[0]
        if node is None:
            raise
        return decode_cluster_id(node.data)
    return cluster_id
