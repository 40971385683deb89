"""The laws of `NodeTree`, over real ZooKeeper servers."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from echoless.broker.config.loading import Config
from echoless.broker.tree.kazoo_batches import PATHS_MAX
from echoless.broker.tree.node_tree import ConnectionLostError, Create, Delete, SetData
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


MANY = 1200
"""Nodes that take several requests, in batches."""


async def _some(tree: ZooKeeperNodeTree) -> tuple[list[str], list[str]]:
    """Nodes, with their numbers as data, and paths without a node between them."""
    paths = [f"/{number:04}" for number in range(MANY)]
    there = [path for number, path in enumerate(paths) if number % 3]
    for start in range(0, len(there), 100):
        await tree.multi([Create(path, path.encode()) for path in there[start : start + 100]])
    return there, [path for path in paths if path not in there]


async def test_many_nodes_are_read_in_few_requests(tree: ZooKeeperNodeTree) -> None:
    """In the order of their paths, those that do not exist among them."""
    there, missing = await _some(tree)
    paths = sorted([*there, *missing])
    asked = 0
    request = tree._request

    async def count(ask: Any) -> Any:
        nonlocal asked
        asked += 1
        return await request(ask)

    tree._request = count  # type: ignore[method-assign]
    found = await tree.read_many(paths)
    assert asked == math.ceil(MANY / PATHS_MAX)
    assert [node and node.data for node in found] == [
        path.encode() if path in there else None for path in paths
    ]
    assert {node.version for node in found if node is not None} == {0}


async def test_many_watches_are_armed_in_few_requests(
    tree: ZooKeeperNodeTree, other: ZooKeeperNodeTree, settle: Settle
) -> None:
    """Each is called for the change of its node, of one that does not exist yet for its creation."""
    there, missing = await _some(tree)
    called: set[str] = set()
    await asyncio.gather(*(tree.watch(path, called.add) for path in [*there, *missing]))
    await settle()
    for path in there[::50]:
        called.clear()
        await other.write(path, b"new", 0)
        await tree.read("/")
        await settle()
        assert path in called
    await settle()
    for path in missing[::50]:
        called.clear()
        await other.create(path)
        await settle()
        assert path in called
    called.clear()
    await other.write(there[0], b"newer", 1)
    await settle()
    assert called == {there[0]}, "it was armed again"


async def test_many_changes_at_once_arm_their_watches_in_few_requests(
    tree: ZooKeeperNodeTree, other: ZooKeeperNodeTree, settle: Settle
) -> None:
    """Deleted, made anew and written: each change is followed by a call, and each watch is there for the next."""
    there, _ = await _some(tree)
    some = there[:600]
    called: dict[str, int] = dict.fromkeys(some, 0)

    def call(path: str) -> None:
        called[path] += 1

    await asyncio.gather(*(tree.watch(path, call) for path in some))
    asked = 0
    request = tree._request

    async def count(ask: Any) -> Any:
        nonlocal asked
        asked += 1
        return await request(ask)

    tree._request = count  # type: ignore[method-assign]
    for change in (Delete, Create, Delete, Create, lambda path: SetData(path, b"x", 0)):
        called = dict.fromkeys(some, 0)
        await other.multi([change(path) for path in some])
        async with asyncio.timeout(30):
            while not all(called.values()):
                await settle()
    await settle()
    assert asked < 600, f"{asked} requests for 5 times 600 changes"
