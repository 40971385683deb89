"""Other replicas for one partition of a registry, whatever they were: `await relocate(registry, "t", 0, (3, 1))`."""

from __future__ import annotations

from collections.abc import Mapping

from echoless.broker.metadata.node_data import Reassignment
from echoless.broker.metadata.topic import Relocation, Topic
from echoless.broker.metadata.topic_registry import TopicRegistry


async def relocate(
    registry: TopicRegistry,
    name: str,
    partition: int,
    replicas: tuple[int, ...],
    moving: Reassignment | None = None,
) -> Topic:
    """The topic as it is then. Raises as `TopicRegistry.change_assignments`."""

    async def decide(_: Topic) -> Mapping[int, Relocation]:
        return {partition: Relocation(replicas, moving)}

    return await registry.change_assignments(name, decide)
