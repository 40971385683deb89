"""The node with the newest block of producer ids: Kafka's own path and fields.

Pure, but for `raise_block`. `producer_ids.py` claims blocks, `seen_tree.py` compares the node with what was seen of it.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from echoless.broker.tree.node_json import decode_node_json
from echoless.broker.tree.node_tree import CoordinationError, Node, NodeTree

PATH: Final = "/latest_producer_id_block"
PRODUCER_ID_MAX: Final = 2**63 - 1
NO_ID: Final = -1
"""The last id of a tree in which no block was claimed."""
NO_BROKER: Final = -1
"""The broker id of a block that no one claimed."""


class ProducerIdBlockError(CoordinationError):
    """No block can be claimed, now or later: the ids are used up, or the node makes no sense."""


class ProducerIdBlock(NamedTuple):
    """A range of ids, both ends inclusive (as in the node)."""

    broker_id: int
    start: int
    end: int

    def encode(self) -> bytes:
        """The node's data."""
        fields = {
            "version": 1,
            "broker": self.broker_id,
            "block_start": str(self.start),
            "block_end": str(self.end),
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> ProducerIdBlock:
        """Raises `ProducerIdBlockError` naming the node and its content. As Kafka, any version."""
        try:
            fields = decode_node_json(data)
            start, end = _parse_id(fields["block_start"]), _parse_id(fields["block_end"])
            block = cls(int(fields["broker"]), start, end)
        except (ValueError, TypeError, KeyError) as error:
            raise ProducerIdBlockError(
                f"{PATH} holds no block of producer ids: {data!r}"
            ) from error
        if not block.start <= block.end <= PRODUCER_ID_MAX:
            raise ProducerIdBlockError(
                f"{PATH} holds an impossible block of producer ids: {data!r}"
            )
        return block


def last_id_of(node: Node | None) -> int:
    """The last id of the node's block, -1 if there is none. Raises `ProducerIdBlockError`."""
    return ProducerIdBlock.decode(node.data).end if node is not None and node.data else NO_ID


async def raise_block(tree: NodeTree, last_id: int) -> bool:
    """Makes the next block begin above `last_id`; returns whether that took a change.

    Raises `CoordinationError`.
    """
    node = (await tree.read_many([PATH]))[0]
    if last_id_of(node) >= last_id:
        return False
    data = ProducerIdBlock(NO_BROKER, last_id, last_id).encode()
    if node is None:
        await tree.create(PATH, data)
    else:
        await tree.write(PATH, data, node.version)
    return True


def _parse_id(text: object) -> int:
    """`int()` alone would take numbers, spaces and underscores."""
    if not (isinstance(text, str) and text.isascii() and text.isdecimal()):
        raise ValueError(f"{text!r} is not a decimal string")
    return int(text)
