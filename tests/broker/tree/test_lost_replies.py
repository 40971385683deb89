"""Lost answers are resolved by reading; and standing nodes are made however many brokers start."""

from __future__ import annotations

import pytest

from echoless.broker.tree.lost_replies import commit
from echoless.broker.tree.node_tree import (
    Check,
    ConnectionLostError,
    Create,
    Delete,
    MultiFailedError,
    Operation,
    SetData,
    ensure_paths,
    parent_of,
)
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree


@pytest.fixture
def server() -> MemoryTree:
    return MemoryTree()


@pytest.fixture
async def tree(server: MemoryTree) -> MemoryNodeTree:
    tree = server.connect()
    await tree.create("/a", b"old")
    return tree


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize(
    "operations",
    [
        [Create("/new", b"1")],
        [SetData("/a", b"new", 0)],
        [Delete("/a", 0)],
        [Check("/a", 0), Create("/new")],
        [Create("/mark"), Delete("/a"), Delete("/mark")],
    ],
)
async def test_a_change_is_made_once(
    tree: MemoryNodeTree, operations: list[Operation], applied: bool
) -> None:
    """Whichever way the answer was lost, the change is there afterwards, and not twice."""
    tree.lose_next_reply(applied=applied)
    await commit(tree, operations)
    found = await tree.read_many(["/a", "/new", "/mark"])
    expected = await on_another_tree(operations)
    assert found == expected


async def on_another_tree(operations: list[Operation]) -> list[object]:
    tree = MemoryTree().connect()
    await tree.create("/a", b"old")
    await tree.multi(operations)
    return list(await tree.read_many(["/a", "/new", "/mark"]))


async def test_a_rivals_write_is_not_taken_for_ours(
    tree: MemoryNodeTree, server: MemoryTree
) -> None:
    """The version alone proves nothing: the data must be ours too."""
    rival = server.connect()
    tree.lose_next_reply(applied=False)
    tree.before_next_change(lambda: rival.write("/a", b"theirs", 0))
    with pytest.raises(MultiFailedError):
        await commit(tree, [SetData("/a", b"ours", 0)])
    assert (await tree.read("/a")).data == b"theirs"


async def test_one_equal_write_of_a_rival_is_not_all_of_ours(
    tree: MemoryNodeTree, server: MemoryTree
) -> None:
    """A leader and the follower that it drops write the same; the follower has more to write."""
    await tree.create("/b", b"old")
    rival = server.connect()
    tree.lose_next_reply(applied=False)
    tree.before_next_change(lambda: rival.write("/a", b"without 2", 0))
    with pytest.raises(MultiFailedError):
        await commit(tree, [SetData("/a", b"without 2", 0), SetData("/b", b"without 2", 0)])
    assert (await tree.read("/b")).data == b"old"


@pytest.mark.parametrize("operation", [Create("/new", b"ours"), SetData("/a", b"ours", 0)])
async def test_a_request_that_lands_late_is_ours(
    tree: MemoryNodeTree, server: MemoryTree, operation: Create | SetData
) -> None:
    """After the read that did not find it: the second attempt runs into the first one."""
    delayed = server.connect()

    async def nothing_yet() -> None:
        """Stalls the first attempt in a frozen server."""

    tree.lose_next_reply(applied=False)
    tree.before_next_change(nothing_yet)
    tree.before_next_change(lambda: delayed.multi([operation]))
    await commit(tree, [operation])
    assert (await tree.read(operation.path)).data == b"ours"


async def test_an_outcome_that_stays_unknown_is_told(tree: MemoryNodeTree) -> None:
    """After three lost answers, or when reading is not possible either."""
    for _ in range(3):
        tree.lose_next_reply(applied=False)
    with pytest.raises(ConnectionLostError):
        await commit(tree, [Create("/new")])
    tree.suspend()
    with pytest.raises(ConnectionLostError):
        await commit(tree, [Create("/new")])


async def test_standing_nodes_are_made_with_what_is_above_them(tree: MemoryNodeTree) -> None:
    """Those that are there stay as they are."""
    await ensure_paths(tree, ["/a/b/c", "/x", "/"])
    await ensure_paths(tree, ["/a/b/c"])
    nodes = await tree.read_many(["/a", "/a/b", "/a/b/c", "/x"])
    assert [node and node.data for node in nodes] == [b"old", b"", b"", b""]


async def test_two_brokers_make_the_same_standing_nodes(
    tree: MemoryNodeTree, server: MemoryTree
) -> None:
    """A lost race over one of them leaves the rest to be made."""
    tree.before_next_change(lambda: server.connect().create("/x"))
    await ensure_paths(tree, ["/x/y", "/a/b"])
    assert None not in await tree.read_many(["/x/y", "/a/b"])


def test_the_root_is_its_own_parent() -> None:
    """Every path leads to the root."""
    assert [parent_of(path) for path in ("/a/b", "/a", "/")] == ["/a", "/", "/"]
