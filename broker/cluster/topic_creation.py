"""The wait of a topic's creator until the other brokers know the topic.

A client that creates a topic and then asks another broker about it should find it there.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from echoless.broker.cluster.view import ClusterView
from echoless.broker.metadata.topic import Topic
from echoless.broker.replication.peers import PeerError, Peers
from echoless.protocol.errors import DecodeError, KafkaError
from echoless.protocol.native.replication import AwaitTopic, read_await_topic_answer

logger = logging.getLogger(__name__)

TOPIC_CREATED_S: Final = 2.0
"""The time the creator of a topic waits for other brokers to know it."""


class TopicCreation:
    """Asks the other brokers of the cluster about new topics."""

    def __init__(self, broker_id: int, view: ClusterView, peers: Peers) -> None:
        self._broker_id = broker_id
        self._view = view
        self._peers = peers

    async def until_known(self, topic: Topic) -> None:
        """Returns when all other brokers know the topic, or have not answered in time."""
        others = [one for one in self._view.live.brokers if one != self._broker_id]
        await asyncio.gather(*(self._await_topic(broker_id, topic) for broker_id in others))

    async def _await_topic(self, broker_id: int, topic: Topic) -> None:
        message = AwaitTopic(
            topic=topic.name, topic_id=topic.topic_id, timeout_ms=int(TOPIC_CREATED_S * 1000)
        )
        address = self._view.native_address(broker_id)
        if address is None:
            return
        try:
            answer = await self._peers.call(
                broker_id, address, message.to_message(), timeout_s=2 * TOPIC_CREATED_S
            )
            read_await_topic_answer(answer)
        except (PeerError, KafkaError, DecodeError) as error:
            logger.info("broker %d does not know %s yet: %s", broker_id, topic.name, error)
