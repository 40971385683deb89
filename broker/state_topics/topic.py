"""An internal topic: made at first need, and the way from a partition of it to the broker that leads it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from echoless.broker.cluster.membership import ClusterMembership
from echoless.broker.limited_log import LimitedLog
from echoless.broker.metadata.node_data import NO_LEADER
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.protocol.errors import ErrorCode, KafkaError

limited = LimitedLog(logging.getLogger(__name__))


class StateTopic:
    """One internal topic, as its coordinators and those who look for them see it."""

    def __init__(
        self,
        name: str,
        registry: TopicRegistry,
        cluster: ClusterMembership,
        create: Callable[[str], Awaitable[None]],
    ) -> None:
        """`create` makes the topic; its partitions take records when it returns. It raises `KafkaError`."""
        self.name = name
        self._registry = registry
        self._cluster = cluster
        self._create = create
        self._creating: asyncio.Future[None] | None = None

    @property
    def partition_count(self) -> int | None:
        """None while there is no such topic."""
        topic = self._registry.topics.get(self.name)
        return None if topic is None else len(topic.assignment)

    async def until_created(self) -> int:
        """Creates the topic unless it is there; returns its number of partitions.

        Raises `KafkaError` COORDINATOR_NOT_AVAILABLE.
        """
        while (count := self.partition_count) is None:
            if self._creating is None:
                self._creating = asyncio.ensure_future(self._create(self.name))
                self._creating.add_done_callback(self._created)
            try:
                await asyncio.shield(self._creating)
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    limited.log(
                        logging.WARNING, self.name, "%s cannot be created: %s", self.name, error
                    )
                if self.partition_count is None:
                    raise _not_available(f"{self.name} cannot be created yet: {error}") from error
        return count

    def _created(self, creating: asyncio.Future[None]) -> None:
        self._creating = None
        if not creating.cancelled():
            creating.exception()  # its requests report it; looked at, in case all of them are gone

    def leader_of(self, partition: int) -> int:
        """The broker that leads the partition. Raises `KafkaError` COORDINATOR_NOT_AVAILABLE."""
        topic = self._registry.topics.get(self.name)
        state = None if topic is None else topic.states.get(partition)
        if state is None or state.leader == NO_LEADER:
            raise _not_available(f"{self.name}-{partition} has no leader")
        if state.leader not in self._cluster.brokers:
            raise _not_available(
                f"broker {state.leader}, which leads {self.name}-{partition}, is away"
            )
        return state.leader


def _not_available(message: str) -> KafkaError:
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
