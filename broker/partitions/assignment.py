"""The replicas that the topic registry assigns to this broker."""

from __future__ import annotations

import uuid

from echoless.broker.metadata.topic_registry import TopicRegistry

Key = tuple[str, int]
"""Topic name and partition index."""


class BrokerAssignment:
    """Compares partitions with the registry's current assignment."""

    __slots__ = ("_registry", "broker_id")

    def __init__(self, registry: TopicRegistry, broker_id: int) -> None:
        self._registry = registry
        self.broker_id = broker_id

    def includes(self, key: Key, topic_id: uuid.UUID) -> bool:
        """Whether this broker has a replica of the partition, in the topic with this very id."""
        topic = self._registry.topics_by_id.get(topic_id)
        return topic is not None and self.broker_id in topic.assignment.get(key[1], ())

    def includes_name(self, key: Key) -> bool:
        """Whether this broker has a replica of the partition, in any topic of that name."""
        topic = self._registry.topics.get(key[0])
        return topic is not None and self.broker_id in topic.assignment.get(key[1], ())
