"""The embedded tree keeps the contract, and its file keeps what was answered."""

from __future__ import annotations

import asyncio
import gc
import random
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from echoless.broker.tree.embedded import EmbeddedNodeTree, TreeInUseError
from echoless.broker.tree.node_tree import (
    ConnectionLostError,
    CoordinationError,
    Create,
    Delete,
    MultiFailedError,
    SessionState,
    SetData,
)
from tests.contracts.node_tree import NodeTreeContract, Settle


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "coordination.db")


@pytest.fixture
async def tree(path: str) -> AsyncIterator[EmbeddedNodeTree]:
    tree = EmbeddedNodeTree.open(path)
    yield tree
    await tree.close()


@pytest.fixture
def settle() -> Settle:
    return lambda: asyncio.sleep(0)


class TestEmbeddedNodeTree(NodeTreeContract):
    """The only client there is."""


async def reopen(tree: EmbeddedNodeTree, path: str) -> EmbeddedNodeTree:
    await tree.close()
    return EmbeddedNodeTree.open(path)


async def test_persistent_nodes_outlive_the_process(path: str) -> None:
    """Data and versions are there at the next open, deletions too."""
    tree = EmbeddedNodeTree.open(path)
    await tree.multi([Create("/a", b"1"), Create("/a/b"), Create("/a/c")])
    await tree.multi([SetData("/a", b"2", 0), Delete("/a/c")])
    tree = await reopen(tree, path)
    assert await tree.read("/a") == (b"2", 1, 0)
    assert await tree.children("/a") == ["b"]
    await tree.close()


async def test_ephemeral_nodes_are_gone_at_the_next_open(path: str) -> None:
    """The session ended with the process, whatever else its last operations changed."""
    tree = EmbeddedNodeTree.open(path)
    await tree.multi([Create("/a"), Create("/a/e", b"", ephemeral=True)])
    await tree.write("/a/e", b"1", 0)
    tree = await reopen(tree, path)
    assert await tree.children("/a") == []
    await tree.close()


async def test_sequential_numbers_go_on_above_the_children_that_are_left(path: str) -> None:
    """The next process creates nothing that sorts before what it finds."""
    tree = EmbeddedNodeTree.open(path)
    await tree.create("/p")
    for _ in range(3):
        last = await tree.create_sequential("/p/change_")
    await tree.delete("/p/change_0000000000")
    tree = await reopen(tree, path)
    assert await tree.create_sequential("/p/change_") == "/p/change_0000000003" > last
    await tree.close()


async def test_the_root_can_be_written(path: str) -> None:
    """The root's data is kept like that of any node, and the root is not its own child."""
    tree = EmbeddedNodeTree.open(path)
    await tree.write("/", b"root", 0)
    tree = await reopen(tree, path)
    assert await tree.read("/") == (b"root", 1, 0)
    assert await tree.children("/") == []
    await tree.close()


async def test_a_second_opener_is_refused(path: str, tree: EmbeddedNodeTree) -> None:
    """The second opener gets an error that names the file in use, and disturbs nothing."""
    with pytest.raises(TreeInUseError, match=path):
        EmbeddedNodeTree.open(path)
    await tree.create("/a")
    assert await tree.children("/") == ["a"]


def test_another_process_is_refused(path: str, tree: EmbeddedNodeTree) -> None:
    """The lock holds between processes."""
    program = f"from echoless.broker.tree.embedded import *; EmbeddedNodeTree.open({path!r})"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert b"TreeInUseError" in run.stderr


def test_a_file_that_is_not_ours_is_refused(path: str) -> None:
    """Neither another program's database nor other bytes are touched."""
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE theirs (x)")
    database.commit()
    database.close()
    with pytest.raises(CoordinationError, match="not a coordination file"):
        EmbeddedNodeTree.open(path)
    Path(path).write_bytes(b"not a database at all" * 1000)
    with pytest.raises(CoordinationError, match=path):
        EmbeddedNodeTree.open(path)


async def test_reads_see_no_change_before_it_is_durable(path: str, tree: EmbeddedNodeTree) -> None:
    """While a change is being written to disk, reads still see the state before."""
    creation = asyncio.ensure_future(tree.create("/a"))
    await asyncio.sleep(0)
    assert await tree.read_many(["/a"]) == [None]
    await creation
    assert await tree.read_many(["/a"]) != [None]


async def test_changes_asked_for_together_are_made_one_after_the_other(
    tree: EmbeddedNodeTree,
) -> None:
    """Exactly one of many writers of the same version wins."""
    await tree.create("/a")
    results = await asyncio.gather(
        *(tree.write("/a", b"%d" % i, 0) for i in range(20)), return_exceptions=True
    )
    assert results.count(1) == 1


async def test_a_cancelled_caller_does_not_tear_a_change(path: str, tree: EmbeddedNodeTree) -> None:
    """A change that was begun is finished: memory and file agree afterwards."""
    creation = asyncio.ensure_future(tree.create("/a"))
    await asyncio.sleep(0)
    creation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creation
    await tree.create("/b")
    assert await tree.children("/") == ["a", "b"]
    tree = await reopen(tree, path)
    assert await tree.children("/") == ["a", "b"]
    await tree.close()


async def test_a_file_that_cannot_be_written_ends_the_session(
    path: str, tree: EmbeddedNodeTree, settle: Settle
) -> None:
    """The content of the disk is unknown, so nothing more is answered, and listeners are notified."""
    states: list[SessionState] = []
    tree.on_session(states.append)
    tree._database.execute("PRAGMA query_only = ON")
    with pytest.raises(ConnectionLostError, match=path):
        await tree.create("/a")
    await settle()
    assert states == [SessionState.LOST]
    with pytest.raises(ConnectionLostError):
        await tree.read("/")


async def test_a_refused_multi_leaves_the_file_alone(path: str, tree: EmbeddedNodeTree) -> None:
    """A change refused in memory never reaches the file."""
    with pytest.raises(MultiFailedError):
        await tree.multi([Create("/a"), Create("/b/c")])
    tree = await reopen(tree, path)
    assert await tree.children("/") == []
    await tree.close()


async def test_a_refusal_that_no_caller_awaits_any_more_is_silent(tree: EmbeddedNodeTree) -> None:
    """A client that has gone while its topic is refused leaves no traceback in the log."""
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    await tree.create("/taken")
    before = asyncio.create_task(tree.create("/before"))
    refused = asyncio.create_task(tree.create("/taken"))
    await asyncio.sleep(0)
    refused.cancel()
    await before
    await asyncio.gather(refused, return_exceptions=True)
    await tree.create("/next")  # in its turn after the refusal
    gc.collect()
    assert refused.cancelled()
    assert told == []


@pytest.mark.slow
def test_a_damaged_file_is_refused_in_words(path: str) -> None:
    """Cut off anywhere, or with any bit flipped: it is opened, or an error names the file and a way out."""
    whole = asyncio.run(_written(path))
    rng = random.Random(1)
    damaged = [whole[:size] for size in range(1, len(whole), 2048)]
    for _ in range(200):
        position = rng.randrange(len(whole))
        changed = bytes([whole[position] ^ 1 << rng.randrange(8)])
        damaged.append(whole[:position] + changed + whole[position + 1 :])
    refusals = [said for data in damaged if (said := asyncio.run(_refusal(path, data)))]
    assert len(refusals) > 10
    assert all(said.startswith((f"cannot open {path}", f"cannot read {path}")) for said in refusals)
    assert all("catch-up" in said for said in refusals)


async def _written(path: str) -> bytes:
    """The bytes of a tree of 60 nodes."""
    tree = EmbeddedNodeTree.open(path)
    await tree.create("/brokers", b"{}")
    for number in range(60):
        await tree.create(f"/brokers/{number}", b"x" * 100)
    await tree.close()
    return Path(path).read_bytes()  # noqa: ASYNC240 - nothing else runs


async def _refusal(path: str, data: bytes) -> str:
    """The error when a file with these bytes is opened; empty if it is opened."""
    for suffix in ("-wal", "-shm"):
        Path(path + suffix).unlink(missing_ok=True)  # noqa: ASYNC240
    Path(path).write_bytes(data)  # noqa: ASYNC240
    try:
        tree = EmbeddedNodeTree.open(path)
    except CoordinationError as error:
        return str(error)
    await tree.close()
    return ""


async def test_a_change_without_a_descriptor_is_refused_and_the_session_goes_on(
    path: str, tree: EmbeddedNodeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite says that it cannot open a file: nothing was changed, and the next change succeeds."""

    def fail(_database: object, _changes: object) -> None:
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("echoless.broker.tree.embedded._write_changes", fail)
        with pytest.raises(CoordinationError, match="ulimit"):
            await tree.create("/a")
    assert tree.session_state is SessionState.CONNECTED
    await tree.create("/b")
    assert await tree.children("/") == ["b"]
    tree = await reopen(tree, path)
    assert await tree.children("/") == ["b"]
    await tree.close()
