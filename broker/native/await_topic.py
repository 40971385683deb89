"""`await_topic`: answered once this broker knows a new topic and has opened its replicas of it.

The broker that handles a CreateTopics sends this to all others before it answers, so that a client
finds the topic on whichever broker it contacts next.
"""

from __future__ import annotations

import asyncio
import uuid
from itertools import chain
from typing import TYPE_CHECKING, Any

from echoless.broker.metadata.node_data import NO_LEADER
from echoless.broker.metadata.topic import Topic, TopicChanged, TopicEvent
from echoless.broker.network.request import Peer
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.replication import AwaitTopic

if TYPE_CHECKING:
    from echoless.broker.services import Services


async def handle(message: AwaitTopic, _peer: Peer, services: Services) -> dict[str, Any]:
    """Returns no fields. Raises `KafkaError` REQUEST_TIMED_OUT."""
    changed = asyncio.Event()

    def note(event: TopicEvent) -> None:
        topic = event.after if isinstance(event, TopicChanged) else event.topic
        if topic.topic_id == message.topic_id:
            changed.set()

    cancel = services.registry.listen(note)
    missing = _Missing(services, message.topic_id)
    try:
        async with asyncio.timeout(message.timeout_ms / 1000):
            while missing.find():
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


class _Missing:
    """The search for a partition that is not ready yet: it has no leader, or does not accept records here yet.

    It goes on from the one that was found last, so that an event costs a look at what it changed, not at the whole topic.
    """

    def __init__(self, services: Services, topic_id: uuid.UUID) -> None:
        self._services = services
        self._topic_id = topic_id
        self._last = 0
        """The partition that was found last."""

    def find(self) -> bool:
        """Whether the topic is unknown, or one of its partitions is not ready."""
        topic = self._services.registry.topics_by_id.get(self._topic_id)
        if topic is None:
            return True
        for index in chain(range(self._last, len(topic.assignment)), range(self._last)):
            if not self._is_ready(topic, index):
                self._last = index
                return True
        return False

    def _is_ready(self, topic: Topic, index: int) -> bool:
        """Whether the partition has a leader, and accepts records if this broker has a replica of it."""
        state = topic.states.get(index)
        if state is None or state.leader == NO_LEADER:
            return False
        if self._services.config.broker_id not in topic.assignment[index]:
            return True
        partition = self._services.partitions.held.get((topic.name, index))
        return (
            partition is not None
            and partition.topic_id == topic.topic_id
            and partition.leader_epoch >= state.leader_epoch
        )
