"""Calls, watches and the session when connections, servers and sessions end."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from echoless.broker.config.loading import Config
from echoless.broker.tree import kazoo_client
from echoless.broker.tree.lost_replies import commit
from echoless.broker.tree.node_tree import (
    ConnectionLostError,
    CoordinationError,
    MultiFailedError,
    Node,
    SessionState,
    SetData,
)
from echoless.broker.tree.zookeeper import ZooKeeperNodeTree
from echoless.testkit.free_ports import free_port
from tests.support.tcp_proxy import TcpProxy
from tests.support.zookeeper import TICK_MS, ZooKeeper, ZooKeeperEnsemble

pytestmark = pytest.mark.cluster

CONNECTED, SUSPENDED, LOST = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST
_PATIENCE_S = 120
"""Time limit for an event; none of the tests takes that long."""
OpenTree = Callable[..., Awaitable[ZooKeeperNodeTree]]


class States:
    """The states of a session, to be waited for in order."""

    def __init__(self, tree: ZooKeeperNodeTree) -> None:
        self._queue: asyncio.Queue[SessionState] = asyncio.Queue()
        tree.on_session(self._queue.put_nowait)

    async def next(self, count: int = 1) -> list[SessionState]:
        async with asyncio.timeout(_PATIENCE_S):
            return [await self._queue.get() for _ in range(count)]


class Calls:
    """The calls of a watch, to be waited for."""

    def __init__(self) -> None:
        self._called = asyncio.Event()

    def __call__(self, _path: str) -> None:
        self._called.set()

    @property
    def is_called(self) -> bool:
        return self._called.is_set()

    async def next(self) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            await self._called.wait()
        self._called.clear()


@pytest.fixture
async def open_tree() -> AsyncIterator[OpenTree]:
    """A function that opens trees for given hosts and settings; all are closed when the test ends."""
    trees: list[ZooKeeperNodeTree] = []

    async def open_one(hosts: str, **settings: object) -> ZooKeeperNodeTree:
        config = Config(coordinator=f"zookeeper://{hosts}", **settings)  # type: ignore[arg-type]
        trees.append(await ZooKeeperNodeTree.open(config))
        return trees[-1]

    yield open_one
    for tree in trees:
        await tree.close()


@pytest.fixture
async def proxy(zookeeper: ZooKeeper) -> AsyncIterator[TcpProxy]:
    async with TcpProxy.open(zookeeper.port) as proxy:
        yield proxy


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ZooKeeper]:
    """A server that the test may stop."""
    server = ZooKeeper(tmp_path)
    server.start()
    yield server
    server.kill()


async def expire(tree: ZooKeeperNodeTree) -> None:
    """Ends the session on the server: by the hand of a second client that says it is the first."""

    def close_from_outside() -> None:
        twin = KazooClient(tree._hosts, client_id=tree._client._kazoo.client_id)
        twin.start()
        twin.stop()
        twin.close()

    await asyncio.to_thread(close_from_outside)


# The beginning


async def test_a_missing_chroot_is_created(zookeeper: ZooKeeper, open_tree: OpenTree) -> None:
    """All of it is created; the second client finds it, and everything in it, under the same paths."""
    chroot = zookeeper.fresh_hosts() + "/deep/down"
    tree = await open_tree(chroot)
    await tree.create("/a", b"1")
    again, above = await open_tree(chroot), await open_tree(chroot.removesuffix("/deep/down"))
    assert (await again.read("/a")).data == b"1"
    assert (await above.read("/deep/down/a")).data == b"1"
    assert await again.children("/") == ["a"]


async def test_a_server_that_is_not_there_is_told_with_its_name_and_the_reason() -> None:
    """After a bounded time the start fails, with one line that says what to look at."""
    hosts = f"127.0.0.1:{free_port()}/x"
    config = Config(coordinator=f"zookeeper://{hosts}", zookeeper_connection_timeout_ms=300)
    with pytest.raises(CoordinationError) as caught:
        await ZooKeeperNodeTree.open(config)
    assert str(caught.value) == (
        f"no connection to ZooKeeper at {hosts} within 0.3 s: "
        "Connection dropped: socket connection error: Connection refused"
    )


async def test_the_session_timeout_is_the_one_that_the_server_grants(
    zookeeper: ZooKeeper, open_tree: OpenTree
) -> None:
    """Whatever was asked for; the server has a least one."""
    asked = await open_tree(zookeeper.hosts(), zookeeper_session_timeout_ms=5000)
    raised = await open_tree(zookeeper.hosts(), zookeeper_session_timeout_ms=100)
    assert (asked.session_timeout_s, raised.session_timeout_s) == (5.0, 2 * TICK_MS / 1000)


async def test_an_ensemble_is_reached_through_any_of_its_servers(
    zookeeper: ZooKeeper, open_tree: OpenTree
) -> None:
    """A server that is down costs nothing but a moment."""
    tree = await open_tree(f"127.0.0.1:{free_port()},{zookeeper.fresh_hosts()}")
    await tree.create("/a")


# Connections that end


async def test_a_broken_connection_suspends_and_resumes_the_session(
    zookeeper: ZooKeeper, proxy: TcpProxy, open_tree: OpenTree
) -> None:
    """Ephemeral nodes live on, and the session has the same id."""
    tree = await open_tree(proxy.address + "/suspended")
    await tree.create("/e", ephemeral=True)
    session_id, states = tree.session_id, States(tree)
    await proxy.cut()
    assert await states.next(2) == [SUSPENDED, CONNECTED]
    assert tree.session_id == session_id == (await tree.read("/e")).owner


async def test_calls_without_a_connection_fail_at_once(
    proxy: TcpProxy, open_tree: OpenTree
) -> None:
    """Reads, changes and watches: nothing is kept to be sent later."""
    tree = await open_tree(proxy.address + "/at-once")
    states = States(tree)
    proxy.is_down = True
    await proxy.cut()
    await states.next()
    for call in (
        tree.read("/"),
        tree.read_many(["/a", "/b"]),
        tree.create("/a"),
        tree.multi([SetData("/a", b"", 0)]),
        tree.watch("/a", Calls()),
        tree.watch_children("/a", Calls()),
    ):
        with pytest.raises(ConnectionLostError):
            await call
    proxy.is_down = False
    assert await states.next() == [CONNECTED]
    assert await tree.children("/") == []


async def test_every_watch_calls_after_a_reconnection_and_goes_on(
    zookeeper: ZooKeeper, proxy: TcpProxy, open_tree: OpenTree
) -> None:
    """Changes made meanwhile are not missed, and neither are later ones."""
    tree, other = await open_tree(proxy.address + "/w"), await open_tree(zookeeper.hosts("/w"))
    await other.create("/parent")
    node, children, unborn, silent = Calls(), Calls(), Calls(), Calls()
    await tree.watch("/node", node)
    await tree.watch_children("/parent", children)
    await tree.watch_children("/unborn", unborn)
    (await tree.watch("/node", silent))()
    states = States(tree)
    proxy.is_down = True
    await proxy.cut()
    await states.next()
    await other.create("/node")
    proxy.is_down = False
    assert await states.next() == [CONNECTED]
    for calls in (node, children, unborn):
        await calls.next()
    await other.write("/node", b"1", 0)
    await other.create("/parent/child")
    await other.create("/unborn")
    for calls in (node, children, unborn):
        await calls.next()
    await other.create("/unborn/child")
    await unborn.next()
    assert not silent._called.is_set()


async def test_a_connection_that_is_never_answered_costs_no_session(
    proxy: TcpProxy, open_tree: OpenTree
) -> None:
    """A server that is being started may accept one, fail to refuse it, and forget it; the next one resumes the session."""
    tree = await open_tree(proxy.address + "/held", zookeeper_session_timeout_ms=6_000)
    states, session_id = States(tree), tree.session_id
    proxy.holds_next = True
    await proxy.cut()
    assert await states.next(2) == [SUSPENDED, CONNECTED]
    assert tree.session_id == session_id
    assert not proxy.holds_next


async def test_a_server_may_be_killed_and_come_back(
    own_server: ZooKeeper, open_tree: OpenTree
) -> None:
    """Acknowledged changes are there, the session continues, watches stay."""
    tree = await open_tree(own_server.hosts("/x"), zookeeper_session_timeout_ms=20_000)
    await tree.create("/e", b"mine", ephemeral=True)
    calls, states, session_id = Calls(), States(tree), tree.session_id
    await tree.watch("/e", calls)
    await asyncio.to_thread(own_server.kill)
    assert await states.next() == [SUSPENDED]
    await asyncio.to_thread(own_server.start)
    assert await states.next() == [CONNECTED]
    await calls.next()
    assert await tree.read("/e") == (b"mine", 0, session_id)
    await tree.write("/e", b"", 0)
    await calls.next()


async def test_a_silent_server_is_noticed_while_requests_go_out(
    proxy: TcpProxy, open_tree: OpenTree
) -> None:
    """No answer in two thirds of the session timeout: that connection is given up.

    kazoo alone takes a request for a ping, and waits for ever as long as there are requests.
    """
    tree = await open_tree(proxy.address + "/silent", zookeeper_session_timeout_ms=1000)
    states = States(tree)
    proxy.loses_answers = True
    requests: list[asyncio.Task[object]] = []

    async def keep_asking() -> None:
        while True:
            requests.append(asyncio.ensure_future(tree.read("/")))
            await asyncio.sleep(0.05)

    asking = asyncio.ensure_future(keep_asking())
    assert await states.next() == [SUSPENDED]
    asking.cancel()
    with pytest.raises(ConnectionLostError, match="does not answer"):
        await requests[0]
    await asyncio.gather(*requests, return_exceptions=True)
    proxy.loses_answers = False
    while await states.next() != [CONNECTED]:
        pass


async def test_a_senseless_answer_ends_the_connection_and_nothing_else(
    proxy: TcpProxy, open_tree: OpenTree
) -> None:
    """kazoo's thread ends over an answer without a request; another one begins."""
    tree = await open_tree(proxy.address + "/senseless")
    states = States(tree)
    proxy.replace_next_answer(struct.pack(">iiqi", 16, 4711, 1, 0))
    with pytest.raises(ConnectionLostError):
        await tree.read("/")
    assert await states.next(2) == [LOST, CONNECTED]
    await tree.create("/a")


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> Refusals:
    """Refuses threads as long as it is to, as a limit of processes does."""
    refusals = Refusals(threading._start_new_thread)  # type: ignore[attr-defined]
    monkeypatch.setattr(threading, "_start_new_thread", refusals)
    monkeypatch.setattr(kazoo_client, "RESTART_DELAY_S", 0.01)
    return refusals


class Refusals:
    """Replaces the interpreter's own start of a thread."""

    def __init__(self, start: Callable[..., object]) -> None:
        self.is_refusing = False
        self._start = start
        self._refused: asyncio.Queue[None] = asyncio.Queue()

    def __call__(self, *args: Any) -> object:
        if not self.is_refusing:
            return self._start(*args)
        self._refused.put_nowait(None)
        raise RuntimeError("can't start new thread")

    async def next(self, count: int) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            for _ in range(count):
                await self._refused.get()


async def test_a_connection_without_a_thread_is_tried_again_and_told_once(
    proxy: TcpProxy, open_tree: OpenTree, refusals: Refusals, caplog: pytest.LogCaptureFixture
) -> None:
    """The session begins when there is a thread again."""
    tree = await open_tree(proxy.address + "/threadless")
    states = States(tree)
    proxy.replace_next_answer(struct.pack(">iiqi", 16, 4711, 1, 0))
    refusals.is_refusing = True
    with pytest.raises(ConnectionLostError):
        await tree.read("/")
    await refusals.next(3)
    refusals.is_refusing = False
    assert await states.next(2) == [LOST, CONNECTED]
    await tree.create("/a")
    assert caplog.text.count("until there is a thread for it") == 1


async def test_the_end_of_a_session_waits_for_a_thread(
    zookeeper: ZooKeeper, open_tree: OpenTree, refusals: Refusals
) -> None:
    """A session that is to expire does; one that is closed lasts until its timeout."""
    tree = await open_tree(zookeeper.fresh_hosts())
    states = States(tree)
    refusals.is_refusing = True
    tree.expire_session()
    await refusals.next(3)
    refusals.is_refusing = False
    assert LOST in await states.next(2)
    refusals.is_refusing = True
    await tree.close()
    refusals.is_refusing = False


# Answers that are lost


async def test_a_change_whose_answer_is_lost_is_made_once(
    zookeeper: ZooKeeper, proxy: TcpProxy, open_tree: OpenTree
) -> None:
    """The caller gets an error for an unknown outcome; it is not sent a second time."""
    tree, other = await open_tree(proxy.address + "/l"), await open_tree(zookeeper.hosts("/l"))
    await tree.create("/a")
    states = States(tree)
    proxy.loses_answers = True
    write = asyncio.ensure_future(tree.write("/a", b"once", -1))
    await proxy.answers_lost.wait()
    assert (await other.read("/a")).version == 1
    await proxy.cut()
    with pytest.raises(ConnectionLostError):
        await write
    proxy.loses_answers = False
    assert (await states.next(2))[-1] is CONNECTED
    assert await tree.read("/a") == (b"once", 1, 0)


async def test_a_lost_answer_is_resolved_by_reading(proxy: TcpProxy, open_tree: OpenTree) -> None:
    """`commit` finds out that its conditional write has landed, and another finds it has lost."""
    tree = await open_tree(proxy.address + "/resolved")
    await tree.create("/a")
    states = States(tree)
    proxy.loses_answers = True
    write = asyncio.ensure_future(tree.multi([SetData("/a", b"mine", 0)]))
    await proxy.answers_lost.wait()
    await proxy.cut()
    with pytest.raises(ConnectionLostError):
        await write
    proxy.loses_answers = False
    await states.next(2)
    with pytest.raises(MultiFailedError):
        await commit(tree, [SetData("/a", b"other", 0)])
    assert await tree.read("/a") == (b"mine", 1, 0)


# Sessions that end


async def test_an_expired_session_is_lost_and_a_new_one_follows(
    zookeeper: ZooKeeper, open_tree: OpenTree
) -> None:
    """Its ephemeral nodes are gone; watches call, and stay."""
    tree = await open_tree(zookeeper.fresh_hosts())
    await tree.create("/e", ephemeral=True)
    calls, states, old_session_id = Calls(), States(tree), tree.session_id
    await tree.watch("/e", calls)
    await expire(tree)
    assert await states.next(3) == [SUSPENDED, LOST, CONNECTED]
    assert tree.session_id not in {old_session_id, 0}
    await calls.next()
    assert await tree.read_many(["/e"]) == [None]
    await tree.create("/e", ephemeral=True)
    assert (await tree.read("/e")).owner == tree.session_id
    await calls.next()


async def test_calls_under_way_end_with_the_session(
    zookeeper: ZooKeeper, proxy: TcpProxy, open_tree: OpenTree
) -> None:
    """No one waits for an answer that cannot come."""
    tree = await open_tree(proxy.address + "/under-way")
    proxy.loses_answers = True
    reads = [asyncio.ensure_future(tree.read("/")) for _ in range(300)]
    await proxy.answers_lost.wait()
    await tree.close()
    results = await asyncio.gather(*reads, return_exceptions=True)
    assert {type(result) for result in results} == {ConnectionLostError}


@pytest.mark.slow
async def test_a_server_that_stands_still_keeps_the_session(
    own_server: ZooKeeper, open_tree: OpenTree
) -> None:
    """Stopped for two thirds of the session timeout, it has not noticed anything when it resumes."""
    tree = await open_tree(own_server.hosts("/x"), zookeeper_session_timeout_ms=9000)
    await tree.create("/e", ephemeral=True)
    states, session_id = States(tree), tree.session_id
    own_server.pause()
    with pytest.raises(ConnectionLostError):
        await tree.read("/e")
    assert await states.next() == [SUSPENDED]
    own_server.resume()
    assert (await read_at_last(tree, "/e", states)).owner == session_id


async def test_thousands_of_reads_at_once_are_all_answered(
    zookeeper: ZooKeeper, open_tree: OpenTree
) -> None:
    """They are pipelined, a hundred at a time; more would fill kazoo's queue and hold up the loop."""
    tree = await open_tree(zookeeper.fresh_hosts())
    await tree.create("/a", b"x")
    nodes = await tree.read_many(["/a", "/b"] * 1000)
    assert nodes == [(b"x", 0, 0), None] * 1000


# Ensembles


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[ZooKeeperEnsemble]:
    ensemble = ZooKeeperEnsemble(tmp_path)
    ensemble.start()
    yield ensemble
    ensemble.kill()


@pytest.mark.slow
async def test_a_session_outlives_the_servers_that_it_was_with(
    ensemble: ZooKeeperEnsemble, open_tree: OpenTree
) -> None:
    """Each in turn is killed and comes back, the leader too: same session, nothing lost.

    Every change is read again after the reconnection, on a server that may have lagged.
    """
    tree = await open_tree(ensemble.hosts("/x"), zookeeper_session_timeout_ms=20_000)
    await tree.create("/e", ephemeral=True)
    calls, states, session_id = Calls(), States(tree), tree.session_id
    await tree.watch("/e", calls)
    for version, member in enumerate(ensemble.members, 1):
        await write_at_last(tree, "/e", version, states)
        await calls.next()
        await asyncio.to_thread(member.kill)
        assert await read_at_last(tree, "/e", states) == (b"x", version, session_id)
        await asyncio.to_thread(member.start)
    assert tree.session_id == session_id


async def read_at_last(tree: ZooKeeperNodeTree, path: str, states: States) -> Node:
    while True:
        try:
            return await tree.read(path)
        except ConnectionLostError:
            while await states.next() != [CONNECTED]:
                pass


async def write_at_last(tree: ZooKeeperNodeTree, path: str, version: int, states: States) -> None:
    """Makes it the node's next version, whichever write turns out to have landed."""
    node = await read_at_last(tree, path, states)
    while node.version < version:
        with contextlib.suppress(ConnectionLostError):
            await tree.write(path, b"x", node.version)
        node = await read_at_last(tree, path, states)
    assert node.version == version


# All of it at once


async def test_thirty_broken_connections_lose_no_change_and_no_call(
    zookeeper: ZooKeeper, proxy: TcpProxy, open_tree: OpenTree
) -> None:
    """One client counts up by conditional writes, and another follows by a watch.

    Each write is applied once, not at all, or with an unknown outcome; the follower ends with the
    last one.
    """
    writer, follower = await open_tree(proxy.address + "/n"), await open_tree(proxy.address + "/n")
    await writer.create("/a")
    seen = asyncio.Event()
    await follower.watch("/a", lambda _: seen.set())
    made = unknown = 0

    async def count_up() -> None:
        nonlocal made, unknown
        while True:
            try:
                version = (await writer.read("/a")).version
            except ConnectionLostError:
                await asyncio.sleep(0.001)
                continue
            try:
                assert await writer.write("/a", b"", version) == version + 1
                made += 1
            except ConnectionLostError:
                unknown += 1

    counting = asyncio.ensure_future(count_up())
    states = States(follower)
    for _ in range(30):
        await proxy.cut()
        while await states.next() != [CONNECTED]:
            pass
    counting.cancel()
    await asyncio.gather(counting, return_exceptions=True)
    direct = await open_tree(zookeeper.hosts("/n"))
    last = (await direct.read("/a")).version
    assert 0 < made <= last <= made + unknown + 1  # the cancelled one
    async with asyncio.timeout(_PATIENCE_S):
        while (await follower.read("/a")).version != last:
            await seen.wait()
            seen.clear()


async def test_a_server_with_an_old_copy_is_recognised_and_ends_the_session(
    own_server: ZooKeeper, tmp_path: Path, open_tree: OpenTree, caplog: pytest.LogCaptureFixture
) -> None:
    """It closes each connection of a client that has seen more, and would do so for ever."""
    tree = await open_tree(own_server.hosts())
    states = States(tree)
    data, copy = tmp_path / "zookeeper-data", tmp_path / "copy"
    own_server.kill()
    shutil.copytree(data, copy)
    own_server.start()
    assert await states.next(2) == [SUSPENDED, CONNECTED]
    await tree.create("/a")
    own_server.kill()
    shutil.rmtree(data)
    shutil.copytree(copy, data)
    own_server.start()
    assert await states.next(3) == [SUSPENDED, LOST, LOST]
    assert "the coordinator's data is an old copy, or another ensemble's" in tree.old_copy
    assert tree.old_copy in caplog.text
    with pytest.raises(ConnectionLostError):
        await tree.children("/")


async def test_an_old_copy_that_knows_no_session_is_recognised_after_the_next_sync(
    own_server: ZooKeeper, tmp_path: Path, open_tree: OpenTree
) -> None:
    """No watch fires, and nothing can be read: what it lacks must not be taken for deleted."""
    data, copy = tmp_path / "zookeeper-data", tmp_path / "copy"
    own_server.kill()
    shutil.copytree(data, copy)
    own_server.start()
    tree = await open_tree(own_server.hosts())
    states, calls = States(tree), Calls()
    for name in "abcdefgh":
        await tree.create(f"/{name}")
    await tree.watch("/a", calls)
    own_server.kill()
    shutil.rmtree(data)
    shutil.copytree(copy, data)
    own_server.start()
    assert await states.next(3) == [SUSPENDED, LOST, LOST]
    assert "an old copy" in tree.old_copy
    assert not calls.is_called


async def test_a_server_that_only_starts_again_ends_no_session(
    own_server: ZooKeeper, open_tree: OpenTree
) -> None:
    """It may close connections, too, before it is ready."""
    tree = await open_tree(own_server.hosts())
    states, session_id = States(tree), tree.session_id
    await tree.create("/a")
    for _ in range(3):
        own_server.kill()
        own_server.start()
        assert await states.next(2) == [SUSPENDED, CONNECTED]
    assert tree.session_id == session_id
