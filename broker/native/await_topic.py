"""`await_topic`: answered once this broker knows a new topic and has opened its replicas of it.

The broker that handles a CreateTopics sends this to all others before it answers, so that a client
finds the topic on whichever broker it contacts next.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from echoless.broker.metadata.node_data import NO_LEADER
from echoless.broker.network.request import Peer
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.replication import AwaitTopic

if TYPE_CHECKING:
    from echoless.broker.services import Services


async def handle(message: AwaitTopic, _peer: Peer, services: Services) -> dict[str, Any]:
    """Returns no fields. Raises `KafkaError` REQUEST_TIMED_OUT."""
    changed = asyncio.Event()
    cancel = services.registry.listen(lambda _: changed.set())
    try:
        async with asyncio.timeout(message.timeout_ms / 1000):
            while not _is_ready(services, message):
                topic = services.registry.topics_by_id.get(message.topic_id)
                if topic is not None and services.partitions.opening(topic):
                    await services.partitions.until_open(topic)
                    continue
                await changed.wait()
                changed.clear()
    except TimeoutError:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"broker {services.config.broker_id} does not have all of topic {message.topic!r} yet",
        ) from None
    finally:
        cancel()
    return {}


def _is_ready(services: Services, message: AwaitTopic) -> bool:
    """Whether every partition has a leader, and those led by this broker accept records."""
    topic = services.registry.topics_by_id.get(message.topic_id)
    if topic is None:
        return False
    for index, replicas in topic.assignment.items():
        state = topic.states.get(index)
        if state is None or state.leader == NO_LEADER:
            return False
        if services.config.broker_id in replicas:
            partition = services.partitions.held.get((topic.name, index))
            if partition is None or partition.topic_id != topic.topic_id:
                return False
            if partition.leader_epoch < state.leader_epoch:
                return False
    return True
