"""The topics as requests create, extend and delete them, on whichever port they arrive.

The registry writes the tree; this file adds what a client relies on when it gets its answer: the
partitions take records on this broker, and the other brokers know the topic. It also refuses partitions
for which this broker has no file descriptors left.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Final

from echoless.broker.cluster.membership import ClusterMembership
from echoless.broker.config.internal_topics import INTERNAL_TOPICS
from echoless.broker.config.loading import Config
from echoless.broker.config.topic import check_in_force
from echoless.broker.descriptors import descriptor_shares
from echoless.broker.limited_log import LimitedLog
from echoless.broker.metadata.features import Features
from echoless.broker.metadata.topic import NewTopic, Topic
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.partitions.partition_registry import PartitionRegistry
from echoless.broker.partitions.topic_deletion import TopicDeletion
from echoless.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)
limited: Final = LimitedLog(logger)
_ANYONE: Final = "any address"
"""Any client may create and delete topics: their lines share one allowance."""


class Topics:
    """Changes of topics, each complete for clients when its method returns."""

    def __init__(
        self,
        config: Config,
        registry: TopicRegistry,
        partitions: PartitionRegistry,
        cluster: ClusterMembership,
        deletion: TopicDeletion,
        *,
        features: Features,
        can_open: Callable[[int], bool],
    ) -> None:
        """`can_open` says whether the file system has descriptors for so many more partitions."""
        self._config = config
        self._registry = registry
        self._partitions = partitions
        self._cluster = cluster
        self._deletion = deletion
        self._features = features
        self._can_open = can_open

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        """Creates a topic; the clients of all brokers can use it when this returns.

        Raises `KafkaError` as `TopicRegistry.create_topic` does, and INVALID_CONFIG for an internal topic.
        """
        wanted = len(new.assignment or ()) or new.partitions
        internal = INTERNAL_TOPICS.get(new.name)
        if internal is not None:
            internal.check_allowed(new.config)
            new = new._replace(config={**internal.created_with(self._config), **new.config})
        self._features.check_topic(new.name, new.config)
        check_in_force(self._config, new.config)
        lack = self._lack_of_room(wanted, new.replication_factor)
        if lack is not None:
            await self._registry.create_topic(new, validate_only=True)  # other reasons come first
            raise lack
        try:
            if not validate_only:
                await self._partitions.until_free(new.name)
            topic = await self._registry.create_topic(new, validate_only=validate_only)
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and new.name in self._registry.topics:
                await self._partitions.until_open(self._registry.topics[new.name])
            raise
        if not validate_only:
            await self._partitions.until_open(topic)
            await self._cluster.topic_created(topic)
        return topic

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignment: Mapping[int, tuple[int, ...]] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Extends a topic; the new partitions take records when this returns.

        Raises `KafkaError` as `TopicRegistry.create_partitions` does.
        """
        known = self._registry.topics.get(name)
        internal = INTERNAL_TOPICS.get(name)
        if internal is not None and known is not None:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"the number of partitions of {name} decides where each {internal.kept}'s state is, "
                f"so it cannot change",
            )
        if known is not None:
            added = max(count - known.partition_count, 0)
            lack = self._lack_of_room(added, known.replication_factor)
            if lack is not None:
                await self._registry.create_partitions(name, count, assignment, validate_only=True)
                raise lack
        topic = await self._registry.create_partitions(
            name, count, assignment, validate_only=validate_only
        )
        if not validate_only:
            await self._partitions.until_open(topic)

    async def delete(self, name: str) -> Topic:
        """Deletes a topic (`partitions/topic_deletion.py`).

        Raises `KafkaError` as `TopicRegistry.delete_topic` does, and INVALID_TOPIC_EXCEPTION.
        """
        internal = INTERNAL_TOPICS.get(name)
        if internal is not None and name in self._registry.topics:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic {name} is internal and cannot be deleted: {internal.kept}s keep their state in it",
            )
        return await self._deletion.delete(name)

    async def auto_create(self, name: str) -> None:
        """Creates a topic because a client asked for it; another request may have been faster."""
        new = NewTopic(
            name=name,
            partitions=self._config.num_partitions,
            replication_factor=self._config.default_replication_factor,
        )
        try:
            await (self.create_internal(name) if name in INTERNAL_TOPICS else self.create(new))
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        else:
            limited.log(
                logging.INFO, _ANYONE, "created topic %s because a client asked for it", name
            )

    async def create_internal(self, name: str) -> None:
        """Creates a topic in which coordinators keep their state, with as many replicas as it can have.

        Raises `KafkaError` as `create` does.
        """
        internal = INTERNAL_TOPICS[name]
        brokers = max(len(self._cluster.brokers), 1)
        replicas = min(internal.replication_factor(self._config), brokers)
        new = NewTopic(
            name=name,
            partitions=internal.partition_count(self._config),
            replication_factor=replicas,
        )
        topic = await self.create(new)
        logger.info(
            "created %s with %d partitions and replication factor %d",
            name,
            topic.partition_count,
            replicas,
        )

    def _lack_of_room(self, partitions: int, replication_factor: int) -> KafkaError | None:
        """The error if this broker's share of new partitions could not be opened."""
        brokers = max(len(self._cluster.brokers), 1)
        share = math.ceil(partitions * min(max(replication_factor, 1), brokers) / brokers)
        if self._can_open(share):
            return None
        return KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{partitions} more partitions need more open files than broker "
            f"{self._config.broker_id} may have (at most {descriptor_shares().limit} descriptors, "
            f"connections included): raise its limit (ulimit -n), or delete topics",
        )
