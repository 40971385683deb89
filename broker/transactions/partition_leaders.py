"""The brokers that a marker goes to: who leads a partition of a transaction, and the proof that one is gone.

A partition without a leader, or that this broker has not heard of, may come back: its marker waits. Only the coordination
tree proves that a topic was deleted, asked in a way that no lagging server of it can answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from echoless.broker.cluster.membership import ClusterMembership
from echoless.broker.metadata.node_data import NO_LEADER, topic_path
from echoless.broker.metadata.topic import Topic
from echoless.broker.metadata.topic_nodes import read_topics
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.tree.node_tree import (
    ANY_VERSION,
    Check,
    MultiFailedError,
    NodeTree,
    NoNodeError,
)
from echoless.protocol.state_records.transaction_records import (
    NO_TOPIC_ID,
    TransactionPartition,
    uuid_of,
)

UNKNOWN_TOPIC: Final = -2
"""The topic, by its id, is not known here."""


class PartitionLeaders:
    """The leaders of partitions as this broker knows them."""

    def __init__(self, tree: NodeTree, registry: TopicRegistry, cluster: ClusterMembership) -> None:
        self._tree = tree
        self._registry = registry
        self._cluster = cluster

    def leader_of(self, partition: TransactionPartition) -> int:
        """The id of a broker that is there; `NO_LEADER` without one, `UNKNOWN_TOPIC`."""
        (leader,) = self.leaders_of((partition,))
        return leader

    def leaders_of(self, partitions: Sequence[TransactionPartition]) -> list[int]:
        """The same for several; those of one topic cost one look at it if they follow each other."""
        brokers, leaders = self._cluster.brokers, list[int]()
        topic, looked_at = None, None
        for partition in partitions:
            name, index, topic_id = partition
            if looked_at != (name, topic_id):
                topic, looked_at = self._topic_of(partition), (name, topic_id)
            if topic is None:
                leaders.append(UNKNOWN_TOPIC)
                continue
            state = topic.states.get(index)
            is_there = state is not None and state.leader in brokers
            leaders.append(state.leader if state is not None and is_there else NO_LEADER)
        return leaders

    def _topic_of(self, partition: TransactionPartition) -> Topic | None:
        if partition.topic_id == NO_TOPIC_ID:
            return self._registry.topics.get(partition.topic)
        return self._registry.topics_by_id.get(uuid_of(partition.topic_id))

    async def is_deleted(self, partition: TransactionPartition) -> bool:
        """Whether the topic of this id, or of this name if it has none, is gone for ever. Raises `CoordinationError`.

        The check is a write, which a server of the tree cannot answer from an old copy; what is read behind it is as new.
        """
        name = partition.topic
        try:
            await self._tree.multi([Check(topic_path(name), ANY_VERSION)])
        except MultiFailedError as error:
            if isinstance(error.cause, NoNodeError):
                return True
            raise
        found = (await read_topics(self._tree, [name])).get(name)
        if found is None or partition.topic_id == NO_TOPIC_ID:
            return found is None
        return found.topic_id.bytes != partition.topic_id
