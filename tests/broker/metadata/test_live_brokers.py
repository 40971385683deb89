"""The live brokers: who is registered, in which session, as soon as the tree says so."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from echoless.broker.metadata.live_brokers import LiveBroker, LiveBrokers
from echoless.broker.metadata.node_data import broker_path
from echoless.broker.metadata.registration import BrokerInfo, register_broker, update_registration
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree, turns


@pytest.fixture
def server() -> MemoryTree:
    return MemoryTree()


@pytest.fixture
def tree(server: MemoryTree) -> MemoryNodeTree:
    return server.connect()


@pytest.fixture
async def live(tree: MemoryNodeTree) -> AsyncIterator[LiveBrokers]:
    live = LiveBrokers(tree)
    await live.start()
    yield live
    await live.close()


def info(broker_id: int) -> BrokerInfo:
    return BrokerInfo(broker_id=broker_id, endpoints={}, started_ms=0)


async def join(server: MemoryTree, broker_id: int) -> MemoryNodeTree:
    tree = server.connect()
    await register_broker(tree, info(broker_id))
    return tree


async def test_who_was_there_is_known_at_once(server: MemoryTree, tree: MemoryNodeTree) -> None:
    """After `start`, ids ascending as numbers, with the sessions."""
    trees = {broker_id: await join(server, broker_id) for broker_id in (10, 9, 1)}
    live = LiveBrokers(tree)
    await live.start()
    expected = {one: LiveBroker(info(one), trees[one].session_id) for one in (1, 9, 10)}
    assert list(live.brokers.items()) == list(expected.items())
    await live.close()


async def test_comings_and_goings_are_heard_of(server: MemoryTree, live: LiveBrokers) -> None:
    """Each call of the listener sees the change in the view already."""
    seen: list[list[int]] = []
    live.listen(lambda: seen.append(list(live.brokers)))
    first = await join(server, 1)
    await turns()
    await join(server, 2)
    await turns()
    first.expire_session()
    await turns()
    assert seen == [[1], [1, 2], [2]]


async def test_an_announcement_is_heard_of(server: MemoryTree, live: LiveBrokers) -> None:
    """A broker that is about to leave changes its node, not the set of nodes."""
    tree = await join(server, 1)
    await turns()
    await update_registration(tree, info(1)._replace(is_leaving=True))
    await turns()
    assert live.brokers[1].info.is_leaving


async def test_another_life_of_a_broker_is_another_broker(
    server: MemoryTree, live: LiveBrokers
) -> None:
    """Same id, same data: the session distinguishes them, even if its end was not noticed."""
    old = await join(server, 1)
    await turns()
    calls: list[int] = []
    live.listen(lambda: calls.append(live.brokers[1].session_id))
    server.end_session(old.session_id)
    new_tree = server.connect()
    await register_broker(new_tree, info(1))
    await turns()
    assert calls[-1] == live.brokers[1].session_id == new_tree.session_id


async def test_what_was_missed_is_read_after_the_reconnection(
    server: MemoryTree, tree: MemoryNodeTree, live: LiveBrokers
) -> None:
    """The view stays as it was until then."""
    first = await join(server, 1)
    await turns()
    tree.suspend()
    first.expire_session()
    await join(server, 2)
    await turns()
    assert list(live.brokers) == [1]
    tree.resume()
    await turns()
    assert list(live.brokers) == [2]


async def test_a_new_session_of_this_client_goes_on(
    server: MemoryTree, tree: MemoryNodeTree, live: LiveBrokers
) -> None:
    """The watches outlive the session."""
    tree.expire_session()
    await join(server, 2)
    tree.reconnect()
    await join(server, 3)
    await turns()
    assert list(live.brokers) == [2, 3]


async def test_a_node_that_cannot_be_read_is_no_broker(
    server: MemoryTree, tree: MemoryNodeTree, live: LiveBrokers
) -> None:
    """It could not be reached; the others are not affected."""
    await join(server, 1)
    await tree.create(broker_path(2), b"junk")
    await tree.create("/brokers/ids/x", b'{"host":"h","port":1,"timestamp":"0"}')
    await turns()
    assert list(live.brokers) == [1]


async def test_a_refresh_shows_what_is_there_now(server: MemoryTree, live: LiveBrokers) -> None:
    """For who cannot wait for a watch, such as a broker that has just registered."""
    await join(server, 1)
    await live.refresh()
    assert list(live.brokers) == [1]


async def test_a_closed_view_is_silent(server: MemoryTree, tree: MemoryNodeTree) -> None:
    """Nothing is read any more; a cancelled listener hears nothing either."""
    live = LiveBrokers(tree)
    await live.start()
    calls: list[int] = []
    cancel = live.listen(lambda: calls.append(1))
    live.listen(lambda: calls.append(2))
    cancel()
    await join(server, 1)
    await turns()
    assert calls == [2]
    await live.close()
    await join(server, 2)
    await turns()
    assert (calls, list(live.brokers)) == ([2], [1])
