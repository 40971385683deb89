"""The in-memory tree keeps the contract, and its faults do what they are called."""

from __future__ import annotations

import asyncio

import pytest

from echoless.broker.tree.node_tree import BadVersionError, ConnectionLostError, SessionState
from tests.contracts.node_tree import NodeTreeContract, Settle, SharedNodeTreeContract
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree


@pytest.fixture
def server() -> MemoryTree:
    return MemoryTree()


@pytest.fixture
def tree(server: MemoryTree) -> MemoryNodeTree:
    return server.connect()


@pytest.fixture
def other(server: MemoryTree) -> MemoryNodeTree:
    return server.connect()


@pytest.fixture
def settle() -> Settle:
    return lambda: asyncio.sleep(0)


class TestMemoryNodeTree(NodeTreeContract):
    """One client."""


class TestSharedMemoryNodeTree(SharedNodeTreeContract):
    """Two clients."""


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_reply_hides_the_outcome(tree: MemoryNodeTree, applied: bool) -> None:
    """The client sees the same error whether the change was applied or not."""
    tree.lose_next_reply(applied=applied)
    with pytest.raises(ConnectionLostError):
        await tree.create("/a")
    assert (await tree.read_many(["/a"]) != [None]) is applied


async def test_a_rival_comes_first(tree: MemoryNodeTree, other: MemoryNodeTree) -> None:
    """The rival's change comes between the client's read and its write."""
    await tree.create("/a")
    tree.before_next_change(lambda: other.write("/a", b"rival", 0))
    with pytest.raises(BadVersionError):
        await tree.write("/a", b"late", 0)


async def test_an_expired_session_comes_back_as_a_new_one(
    tree: MemoryNodeTree, other: MemoryNodeTree
) -> None:
    """LOST takes the ephemeral nodes with it; CONNECTED again has another id and calls watches."""
    states: list[SessionState] = []
    calls: list[str] = []
    tree.on_session(states.append)
    await tree.watch("/e", calls.append)
    await tree.create("/e", ephemeral=True)
    old_session_id = tree.session_id
    tree.suspend()
    tree.expire_session()
    assert await other.read_many(["/e"]) == [None]
    calls.clear()
    tree.reconnect()
    await asyncio.sleep(0)
    assert states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
    assert tree.session_id != old_session_id
    assert calls == ["/e"]
