"""Several brokers in the test's own process, with real disks and real connections; only the coordinator is a fake."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from echoless.broker.config.loading import Config
from echoless.broker.environment import Environment, this_machine
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree
from tests.support.in_process import Running, in_process


@asynccontextmanager
async def in_process_cluster(
    directory: Path, brokers: int = 3, **settings: Any
) -> AsyncIterator[list[Running]]:
    """Brokers 1 to `brokers`, in this order."""
    server = MemoryTree()
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                in_process(
                    directory / str(broker_id),
                    environment=_environment(server),
                    broker_id=broker_id,
                    coordinator="zookeeper://memory",
                    **settings,
                )
            )
            for broker_id in range(1, brokers + 1)
        ]


def _environment(server: MemoryTree) -> Environment:
    tree = server.connect()

    async def open_tree(_config: Config) -> MemoryNodeTree:
        return tree

    return this_machine()._replace(open_tree=open_tree)
