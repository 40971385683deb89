"""`note_tree`: answered once this broker has read the newest block of producer ids, and noted it on its disk.

The broker that claims a block sends this to all others before it hands out the first id of it
(`broker/cluster/tree_watch.py`). What it says is not believed: this broker reads the coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from echoless.broker.network.request import Peer
from echoless.protocol.native.replication import NoteTree

if TYPE_CHECKING:
    from echoless.broker.services import Services


async def handle(message: NoteTree, _peer: Peer, services: Services) -> dict[str, Any]:
    """Returns the last id that is noted; it may be lower while this broker's server of ZooKeeper lags."""
    return {"last_id": await services.cluster.note_tree(message.last_id)}
