"""A broker of a cluster, over a coordinator and disks in memory."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from typing import Any

from echoless.broker.assembly import new_broker
from echoless.broker.config.advertised import Advertised
from echoless.broker.config.loading import Address, Config
from echoless.broker.environment import Environment, monotonic_ms, wall_clock_ms
from echoless.broker.metadata.node_data import broker_path
from echoless.broker.metadata.registration import decode_broker
from echoless.broker.replication.peers import TcpPeers
from tests.fakes.memory_file_system import MemoryFileSystem
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree, turns

PATIENCE_S = 120.0
ENDPOINTS = {
    name: Advertised(Address("127.0.0.1", port)) for name, port in (("PLAINTEXT", 1), ("NATIVE", 2))
}


class Member:
    """A broker of a cluster of which it may be the only one."""

    def __init__(self, server: MemoryTree, disk: MemoryFileSystem, **settings: Any) -> None:
        self.server = server
        self.tree = server.connect()
        self.tree.session_timeout_s = 0.1
        rng = random.Random(1)
        environment = Environment(
            file_system=disk,
            open_tree=self._open_tree,
            open_peers=TcpPeers,
            now_ms=wall_clock_ms,
            rng=rng,
            new_uuid=lambda: uuid.UUID(int=rng.getrandbits(128)),
            monotonic_ms=monotonic_ms,
        )
        config = Config(
            data_dir="/data",
            coordinator="zookeeper://memory",
            **settings,
        )
        self.broker = new_broker(config, environment)

    async def _open_tree(self, _config: Config) -> MemoryNodeTree:
        return self.tree

    async def start(self) -> None:
        await self.broker.start(ENDPOINTS)

    async def led(self, topic: str) -> None:
        """Returns when the broker leads partition 0 of the topic."""
        while not self.broker.services.partitions.find(topic, 0).is_leader:
            await self.tree.children("/brokers")  # a turn for everybody else

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Returns when something has become true; it has to, soon."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_true():
                await turns(1)  # for everybody else

    def is_told_to_leave(self) -> bool:
        """Whether all others can see that this broker is about to leave."""
        path = broker_path(1)
        node = self.server.nodes.get(path)
        return node is not None and decode_broker(path, node).is_leaving
