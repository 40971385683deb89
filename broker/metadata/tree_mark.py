"""A broker's mark: a number in the coordinator's tree that only this broker raises, and that its data directory repeats.

A tree that was restored from an older copy may have gone on since: other brokers have claimed blocks of producer
ids and begun leader epochs in it, and soon its numbers are as high as those of the newer tree that was lost. The
mark tells the two apart for ever, since nobody else writes it.

Only brokers with ZooKeeper have marks. A broker that stands alone writes everything itself.
"""

from __future__ import annotations

import json
from typing import Final

from echoless.broker.metadata.node_data import NodeDataError
from echoless.broker.tree.node_json import decode_node_json
from echoless.broker.tree.node_tree import Create, Node, NodeTree, Operation, SetData, ensure_paths

MARKS: Final = "/brokers/marks"
NO_MARK: Final = 0


def mark_path(broker_id: int) -> str:
    """The broker's node."""
    return f"{MARKS}/{broker_id}"


def mark_of(broker_id: int, node: Node | None) -> int:
    """The mark in the node, `NO_MARK` without one. Raises `NodeDataError`."""
    if node is None:
        return NO_MARK
    try:
        mark = decode_node_json(node.data)["mark"]
    except (ValueError, TypeError, KeyError):
        mark = None
    if type(mark) is not int or mark < NO_MARK:
        raise NodeDataError(
            f"the node {mark_path(broker_id)} holds what cannot be read: {node.data!r}"
        )
    return mark


def encode_mark(mark: int) -> bytes:
    """The node's data."""
    return json.dumps({"version": 1, "mark": mark}, separators=(",", ":")).encode()


def mark_operation(broker_id: int, node: Node | None, mark: int) -> Operation:
    """The change that sets the mark, if the node is still what it was; its parent has to exist."""
    path, data = mark_path(broker_id), encode_mark(mark)
    return Create(path, data) if node is None else SetData(path, data, node.version)


async def raise_mark(tree: NodeTree, broker_id: int, mark: int) -> bool:
    """Raises the broker's mark to `mark`; returns whether that took a change.

    Raises `CoordinationError`.
    """
    node = (await tree.read_many([mark_path(broker_id)]))[0]
    if mark_of(broker_id, node) >= mark:
        return False
    await ensure_paths(tree, [MARKS])
    await tree.multi([mark_operation(broker_id, node, mark)])
    return True
