"""When a broker says that it has a new topic."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from echoless.broker.metadata.node_data import NO_LEADER, LeaderAndIsr
from echoless.broker.metadata.topic import Topic
from echoless.broker.metadata.topic_view import TopicView
from echoless.broker.native import await_topic
from echoless.broker.network.request import Peer
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.replication import AwaitTopic

HERE, ELSEWHERE = 1, 2
TOPIC_ID = uuid.UUID(int=4)
LONG_MS = 30_000


@dataclass(slots=True)
class FakePartitions:
    """The partitions that the broker holds."""

    held: dict[tuple[str, int], Any] = field(default_factory=dict)
    disk: asyncio.Event | None = None
    """An event for which partitions being created wait."""

    def opening(self, _topic: Topic) -> tuple[int, ...]:
        return () if self.disk is None else (0,)

    async def until_open(self, _topic: Topic) -> None:
        assert self.disk is not None
        await self.disk.wait()
        self.disk = None
        self.open(0)

    def open(self, index: int, *, topic_id: uuid.UUID = TOPIC_ID, leader_epoch: int = 3) -> None:
        self.held["t", index] = SimpleNamespace(topic_id=topic_id, leader_epoch=leader_epoch)


@dataclass(slots=True)
class FakeServices:
    """The parts that the handler asks."""

    partitions: FakePartitions = field(default_factory=FakePartitions)
    registry: TopicView = field(default_factory=TopicView)
    config: Any = field(default_factory=lambda: SimpleNamespace(broker_id=HERE))


def topic(*leaders: int) -> Topic:
    """One partition for each leader, with its only replica there; -1: here, and not led."""
    states = enumerate(LeaderAndIsr(leader=one, leader_epoch=3, isr=(HERE,)) for one in leaders)
    return Topic(
        name="t",
        topic_id=TOPIC_ID,
        assignment={
            index: (HERE if one == NO_LEADER else one,) for index, one in enumerate(leaders)
        },
        states=dict(states),
        config={},
    )


async def wait(services: FakeServices, timeout_ms: int = LONG_MS, **changes: Any) -> dict[str, Any]:
    message = AwaitTopic(topic="t", topic_id=TOPIC_ID, timeout_ms=timeout_ms)
    peer = Peer(1, "127.0.0.1:1")
    return await await_topic.handle(replace(message, **changes), peer, services)  # type: ignore[arg-type]


async def test_a_topic_that_is_there_is_answered_at_once() -> None:
    """Its leaders known, and what this broker leads of it open, in the epoch that it leads."""
    services = FakeServices()
    services.registry.publish("t", topic(HERE, ELSEWHERE))
    services.partitions.open(0)
    assert await wait(services, timeout_ms=0) == {}


@pytest.mark.parametrize(
    ("known", "opened"),
    [
        (None, {}),
        (topic(NO_LEADER), {"index": 0}),
        (topic(HERE), {"index": 1}),
        (topic(HERE), {"index": 0, "leader_epoch": 2}),
        (topic(HERE), {"index": 0, "topic_id": uuid.UUID(int=5)}),
        (topic(HERE)._replace(states={}), {"index": 0}),
        (topic(HERE)._replace(topic_id=uuid.UUID(int=5)), {"index": 0}),
    ],
)
async def test_a_topic_that_is_not_all_there_is_waited_for(known: Any, opened: Any) -> None:
    """Unknown, not led, not opened, not yet in its role, or of the same name only: not in time."""
    services = FakeServices()
    if known is not None:
        services.registry.publish("t", known)
        services.partitions.open(**opened)
    with pytest.raises(KafkaError, match="broker 1 does not have all of topic 't'") as caught:
        await wait(services, timeout_ms=1)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert not services.registry._listeners


async def test_the_wait_ends_with_the_last_change_that_was_missing() -> None:
    """The topic comes, then its leader: only then is it complete; no listener is left."""
    services = FakeServices()
    waiting = asyncio.create_task(wait(services))
    await asyncio.sleep(0)
    services.registry.publish("t", topic(NO_LEADER))
    services.partitions.open(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    services.registry.publish("t", topic(ELSEWHERE))
    assert await waiting == {}
    assert not services.registry._listeners


async def test_whoever_has_gone_leaves_no_listener_behind() -> None:
    """The connection that asked has ended."""
    services = FakeServices()
    waiting = asyncio.create_task(wait(services))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert not services.registry._listeners


async def test_partitions_that_are_being_made_are_waited_for() -> None:
    """The registry has no event for them; no listener is left when they are there."""
    services = FakeServices(FakePartitions(disk=asyncio.Event()))
    services.registry.publish("t", topic(HERE))
    waiting = asyncio.create_task(wait(services))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert services.partitions.disk is not None
    services.partitions.disk.set()
    assert await waiting == {}
    assert not services.registry._listeners


class CountingDict(dict[Any, Any]):
    """Counts the looks at what it holds."""

    looks = 0

    def get(self, key: Any, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)


async def test_an_event_costs_a_look_at_what_was_missing_not_at_the_whole_topic() -> None:
    """Leaders become known one after the other; other topics change meanwhile."""
    count = 300
    held = CountingDict()
    services = FakeServices(FakePartitions(held))
    for index in range(count):
        services.partitions.open(index)
    waiting = asyncio.create_task(wait(services))
    await asyncio.sleep(0)
    whole = topic(*[HERE] * count)
    for known in range(count):
        states = {index: one for index, one in whole.states.items() if index <= known}
        services.registry.publish("t", whole._replace(states=states))
        other = whole._replace(name="u", topic_id=uuid.UUID(int=6), config={"a": str(known)})
        services.registry.publish("u", other)
        assert not waiting.done()
        await asyncio.sleep(0)
    assert await waiting == {}
    assert held.looks <= 3 * count


async def test_a_partition_that_loses_its_leader_meanwhile_is_waited_for() -> None:
    """It was ready while another one was not: all have to be ready at once."""
    services = FakeServices()
    services.registry.publish("t", topic(ELSEWHERE, NO_LEADER))
    waiting = asyncio.create_task(wait(services))
    await asyncio.sleep(0)
    services.registry.publish("t", topic(NO_LEADER, ELSEWHERE))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    services.registry.publish("t", topic(ELSEWHERE, ELSEWHERE))
    assert await waiting == {}
