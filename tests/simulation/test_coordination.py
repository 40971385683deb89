"""The simulated tree keeps the contract, too, over a network in fine weather; here it runs in real time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random

import pytest

from echoless.broker.tree.node_tree import ConnectionLostError
from tests.contracts.node_tree import NodeTreeContract, Settle, SharedNodeTreeContract
from tests.simulation.coordination import SimulatedNodeTree
from tests.simulation.coordinator import TreeServer
from tests.simulation.network import Network
from tests.simulation.process import Process

_SESSION_S = 600.0


@pytest.fixture(params=range(4), ids="seed {}".format)
async def server(request: pytest.FixtureRequest) -> TreeServer:
    """The seed decides to which server each client is connected."""
    loop = asyncio.get_running_loop()
    return TreeServer(Network(loop, Random(request.param)))  # type: ignore[arg-type]


async def _open(server: TreeServer, name: str) -> SimulatedNodeTree:
    network = server.network
    process = Process(network.loop, name)
    return await SimulatedNodeTree.open(server, network, name, process, _SESSION_S)


@pytest.fixture
async def tree(server: TreeServer) -> AsyncIterator[SimulatedNodeTree]:
    client = await _open(server, "client-1")
    yield client
    await client.close()


@pytest.fixture
async def other(server: TreeServer) -> AsyncIterator[SimulatedNodeTree]:
    client = await _open(server, "client-2")
    yield client
    await client.close()


@pytest.fixture
def settle(tree: SimulatedNodeTree) -> Settle:
    """An answer arrives after the notifications that were sent before it."""

    async def settle() -> None:
        with contextlib.suppress(ConnectionLostError):  # closed: nothing more is sent to it
            await tree.read_many(["/"])
        await asyncio.sleep(0)

    return settle


class TestSimulatedNodeTree(NodeTreeContract):
    """One client."""


class TestSharedSimulatedNodeTree(SharedNodeTreeContract):
    """Two clients."""
