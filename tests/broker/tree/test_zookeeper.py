"""The laws of `NodeTree`, over real ZooKeeper servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from echoless.broker.config.loading import Config
from echoless.broker.tree.node_tree import ConnectionLostError
from echoless.broker.tree.zookeeper import ZooKeeperNodeTree
from tests.contracts.node_tree import NodeTreeContract, Settle, SharedNodeTreeContract
from tests.support.zookeeper import ZooKeeper, ZooKeeperVersion
from tests.toolchain import require

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", params=list(ZooKeeperVersion), ids=lambda version: version.value)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeper]:
    """One server of each version."""
    if request.param is ZooKeeperVersion.V3_8:
        require("kafka")
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper"), version=request.param)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def hosts(server: ZooKeeper) -> str:
    return server.fresh_hosts()


@pytest.fixture
async def tree(hosts: str) -> AsyncIterator[ZooKeeperNodeTree]:
    tree = await ZooKeeperNodeTree.open(Config(coordinator=f"zookeeper://{hosts}"))
    yield tree
    await tree.close()


@pytest.fixture
async def other(tree: ZooKeeperNodeTree, hosts: str) -> AsyncIterator[ZooKeeperNodeTree]:
    other = await ZooKeeperNodeTree.open(Config(coordinator=f"zookeeper://{hosts}"))
    yield other
    await other.close()


@pytest.fixture
def settle(tree: ZooKeeperNodeTree) -> Settle:
    """An event comes before the answer to any later request; then two more for the new watch."""

    async def settle() -> None:
        for _ in range(5):
            with contextlib.suppress(ConnectionLostError):
                await tree.read("/")
            await asyncio.sleep(0)

    return settle


class TestZooKeeperNodeTree(NodeTreeContract):
    """One client alone."""


class TestSharedZooKeeper(SharedNodeTreeContract):
    """Two clients of one chroot."""
