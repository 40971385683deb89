"""Deletion of topics: answered when it is durable, and finished in the background.

1. The registry deletes the topic (`metadata/topic_nodes.py`): no one can use it any more, and a restart knows
   that it was deleted. The request is answered here.
2. The directories on this broker leave their names (`removal.py`). A crash before: the next start finds the
   mark of the deletion, and removes them (`stray_logs.py`).
3. The last nodes of the topic go, and the mark. A crash before: the next start deletes them.

A creation of the same name waits for step 2.
"""

from __future__ import annotations

import asyncio
import logging

from echoless.broker.essential_task import reported_task
from echoless.broker.metadata.topic import Topic
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.partitions.partition_registry import PartitionRegistry
from echoless.broker.tree.node_tree import CoordinationError

logger = logging.getLogger(__name__)


class TopicDeletion:
    """Deletes topics of one broker's cluster."""

    def __init__(self, registry: TopicRegistry, partitions: PartitionRegistry) -> None:
        self._registry = registry
        self._partitions = partitions
        self._unfinished: set[asyncio.Task[None]] = set()

    async def delete(self, name: str) -> Topic:
        """Deletes a topic; returns what it was. Raises as `TopicRegistry.delete_topic`."""
        topic = await self._registry.delete_topic(name)
        task = reported_task(self._finish(topic), f"deletion of {name}")
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return topic

    async def close(self) -> None:
        """Leaves unfinished deletions to the next start."""
        for task in self._unfinished:
            task.cancel()
        await asyncio.gather(*self._unfinished, return_exceptions=True)

    async def _finish(self, topic: Topic) -> None:
        await self._partitions.until_removed(topic)
        try:
            await self._registry.finish_deletion(topic)
        except CoordinationError as error:
            logger.warning(
                "the nodes of the deleted topic %s stay until the next start: %s", topic.name, error
            )
