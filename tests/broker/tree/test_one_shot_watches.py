"""One-shot watches, armed again and again; over a server that is a list."""

from __future__ import annotations

import asyncio

import pytest

from echoless.broker.tree.node_tree import ConnectionLostError, NodeError
from echoless.broker.tree.one_shot_watches import (
    ARMING_INFLIGHT_MAX,
    Fired,
    OneShotWatches,
)


class Server:
    """Remembers what is armed; `change` fires it, as ZooKeeper does."""

    def __init__(self) -> None:
        self.armed: dict[str, set[Fired]] = {}
        self.refuses: Exception | None = None
        self.arming = self.arming_max = 0

    async def arm(self, path: str, fired: Fired) -> None:
        self.arming += 1
        self.arming_max = max(self.arming_max, self.arming)
        await asyncio.sleep(0)
        self.arming -= 1
        if self.refuses is not None:
            raise self.refuses
        self.armed.setdefault(path, set()).add(fired)

    async def change(self, path: str) -> None:
        for fired in self.armed.pop(path, set()):
            fired()
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def watches(server: Server) -> OneShotWatches:
    return OneShotWatches(server.arm)


async def test_a_watch_is_armed_again_before_it_calls(
    server: Server, watches: OneShotWatches
) -> None:
    """The next change cannot slip through between the call and the callback's read."""
    armed_at_call = []
    await watches.watch("/a", lambda path: armed_at_call.append(path in server.armed))
    await server.change("/a")
    await server.change("/a")
    assert armed_at_call == [True, True]


async def test_many_listeners_share_one_watch(server: Server, watches: OneShotWatches) -> None:
    """However often a path is watched and left, the server has one thing to remember."""
    calls: list[int] = []
    for number in range(20):
        cancel = await watches.watch("/a", lambda _, number=number: calls.append(number))
        if number % 2:
            cancel()
    assert len(server.armed["/a"]) == 1
    await server.change("/a")
    assert calls == list(range(0, 20, 2))


async def test_a_watch_without_listeners_is_not_armed_again(
    server: Server, watches: OneShotWatches
) -> None:
    """It ends with the event that it was armed for, or with the connection."""
    (await watches.watch("/a", lambda _: None))()
    (await watches.watch("/b", lambda _: None))()
    await server.change("/a")
    server.armed.clear()
    await watches.restore()
    assert server.armed == {}


async def test_a_watch_that_cannot_be_armed_registers_nothing(
    server: Server, watches: OneShotWatches
) -> None:
    """The caller gets an error, and will never be called."""
    calls: list[str] = []
    server.refuses = ConnectionLostError("gone")
    with pytest.raises(ConnectionLostError):
        await watches.watch("/a", calls.append)
    server.refuses = None
    await watches.restore()
    await server.change("/a")
    assert (calls, server.armed) == ([], {})


async def test_a_change_at_the_end_of_a_connection_is_told_after_it(
    server: Server, watches: OneShotWatches
) -> None:
    """No callback runs while the watch cannot be armed; the reconnection makes up for it."""
    calls: list[str] = []
    await watches.watch("/a", calls.append)
    server.refuses = ConnectionLostError("gone")
    await server.change("/a")
    assert calls == []
    server.refuses = None
    await watches.restore()
    await asyncio.sleep(0)
    assert calls == ["/a"]
    await server.change("/a")
    assert calls == ["/a", "/a"]


async def test_a_watch_that_the_server_refuses_later_is_told_of(
    server: Server, watches: OneShotWatches, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and its listeners are called, to find out by themselves."""
    calls: list[str] = []
    await watches.watch("/a", calls.append)
    server.refuses = NodeError("/a", "is closed to us")
    await server.change("/a")
    assert calls == ["/a"]
    assert "/a cannot be watched any longer" in caplog.text


async def test_after_a_reconnection_watches_are_armed_some_at_a_time(
    server: Server, watches: OneShotWatches
) -> None:
    """All of them in the end, each before its call; other requests get their turn in between."""
    calls: list[str] = []
    paths = [f"/{number:03}" for number in range(3 * ARMING_INFLIGHT_MAX)]
    for path in paths:
        await watches.watch(path, calls.append)
    server.armed.clear()
    await watches.restore()
    await asyncio.sleep(0)
    assert calls == paths == list(server.armed)
    assert server.arming_max == ARMING_INFLIGHT_MAX
