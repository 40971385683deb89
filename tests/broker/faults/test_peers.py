"""Links between brokers that are cut."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from echoless.broker.config.values import Address
from echoless.broker.faults.peers import FaultyPeers
from echoless.broker.replication.peers import PeerError
from tests.broker.faults.lab import Lab

ADDRESS = Address("127.0.0.1", 9)


class Answering:
    """Peers that always answer."""

    def __init__(self) -> None:
        self.disconnected: list[int] = []

    async def call(
        self, broker_id: int, address: Address, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        return {"from": broker_id}

    def disconnect(self, broker_id: int) -> None:
        self.disconnected.append(broker_id)

    async def close(self) -> None:
        pass


@pytest.fixture
def peers(lab: Lab) -> FaultyPeers:
    """Those of a broker: its rules reach them."""
    lab.join()
    lab.broker.faults._open_peers = Answering
    return lab.broker.faults.environment.open_peers()


async def ask(peers: FaultyPeers, broker_id: int, timeout_s: float = 0.05) -> dict[str, Any]:
    return await peers.call(broker_id, ADDRESS, {"type": "replica_fetch"}, timeout_s=timeout_s)


async def test_a_cut_link_is_silent_and_the_others_are_not(lab: Lab, peers: FaultyPeers) -> None:
    """A call waits for its timeout; calls in flight fail when the link is cut."""
    assert peers.call == peers._inner.call
    name = lab.add({"type": "cut_replica_link", "broker_id": 2})
    assert peers._inner.disconnected == [2]
    assert await ask(peers, 3) == {"from": 3}
    with pytest.raises(PeerError, match=f"the fault rule {name} cuts the link"):
        await ask(peers, 2)
    assert lab.counts(name) == (1, 1)
    assert [hit.action for hit in lab.hits()] == ["cut_replica_link"]


async def test_a_link_that_is_mended_fails_who_waits_and_then_works(
    lab: Lab, peers: FaultyPeers
) -> None:
    """Pending callers retry at once."""
    name = lab.add({"type": "cut_replica_link", "broker_id": 2})
    asking = asyncio.ensure_future(ask(peers, 2, timeout_s=30))
    while lab.counts(name) != (1, 1):  # noqa: ASYNC110 - no event to wait for
        await asyncio.sleep(0)
    lab.broker.faults.remove(name)
    with pytest.raises(PeerError):
        await asking
    assert await ask(peers, 2) == {"from": 2}
    assert peers.call == peers._inner.call


async def test_a_cut_link_mends_in_time(lab: Lab, peers: FaultyPeers) -> None:
    """`duration_ms` ends it."""
    lab.add({"type": "cut_replica_link", "broker_id": 2}, duration_ms=20)
    with pytest.raises(PeerError):
        await ask(peers, 2, timeout_s=30)
    assert await ask(peers, 2) == {"from": 2}


async def test_a_link_is_mended_by_a_timer_that_is_early(lab: Lab, peers: FaultyPeers) -> None:
    """The end counts, not the clock, which may still be before it by its resolution."""
    lab.add({"type": "cut_replica_link", "broker_id": 2}, duration_ms=60_000)
    (rule,) = peers._rules
    lab.broker.faults._rules._end_in_time(rule)
    assert await ask(peers, 2) == {"from": 2}
