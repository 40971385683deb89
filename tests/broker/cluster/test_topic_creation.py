"""A topic's creator waits until the other brokers know it, but not for those that do not answer."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from echoless.broker.cluster.topic_creation import TopicCreation
from echoless.broker.cluster.view import ClusterView
from echoless.broker.config.loading import Address
from echoless.broker.metadata.live_brokers import LiveBroker
from echoless.broker.metadata.registration import BrokerInfo, Endpoint
from echoless.broker.metadata.topic import Topic
from echoless.broker.replication.peers import PeerError
from tests.fakes.memory_node_tree import MemoryTree, turns

TOPIC = Topic(
    name="orders", topic_id=uuid.UUID(int=7), assignment={0: (1, 2)}, states={}, config={}
)
KNOWN = {"error": {"code": 0, "name": "NONE", "message": "", "retriable": False}}
UNKNOWN = {"error": {"code": 3, "name": "UNKNOWN", "message": "not yet", "retriable": True}}


@dataclass(slots=True)
class FakePeers:
    """Other brokers, which answer with what `answers` has, once `may_answer` is set."""

    answers: dict[int, dict[str, Any] | PeerError]
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    asked: dict[int, tuple[Address, str]] = field(default_factory=dict)

    async def call(
        self, broker_id: int, address: Address, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        assert timeout_s > 0
        self.asked[broker_id] = (address, message["topic"])
        await self.may_answer.wait()
        answer = self.answers[broker_id]
        if isinstance(answer, PeerError):
            raise answer
        return answer

    def disconnect(self, broker_id: int) -> None: ...

    async def close(self) -> None: ...


def view(*broker_ids: int, without_port: int = 0) -> ClusterView:
    """The view of broker 1, of a cluster of these brokers; one may have no native port."""
    cluster = ClusterView(MemoryTree().connect(), 1)
    for broker_id in broker_ids:
        native = {} if broker_id == without_port else {"NATIVE": Endpoint(host="host", port=9)}
        info = BrokerInfo(broker_id=broker_id, endpoints=native, started_ms=0)
        cluster.live.brokers[broker_id] = LiveBroker(info, session_id=broker_id)
    return cluster


async def test_it_waits_for_all_others() -> None:
    """Each is asked at its native port, at the same time; the creator itself is not."""
    peers = FakePeers({2: KNOWN, 3: KNOWN})
    waiting = asyncio.ensure_future(TopicCreation(1, view(1, 2, 3), peers).until_known(TOPIC))
    await turns()
    assert peers.asked == dict.fromkeys((2, 3), (Address("host", 9), "orders"))
    assert not waiting.done()
    peers.may_answer.set()
    await waiting


async def test_brokers_that_cannot_say_do_not_fail_the_creation() -> None:
    """One is unreachable, one is slow, one answers nonsense, and one has no native port."""
    answers = {2: PeerError("gone"), 3: UNKNOWN, 4: {"error": "none"}}
    peers = FakePeers(answers)
    peers.may_answer.set()
    await TopicCreation(1, view(1, 2, 3, 4, 5, without_port=5), peers).until_known(TOPIC)
    assert list(peers.asked) == [2, 3, 4]
