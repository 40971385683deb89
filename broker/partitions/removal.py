"""Removal of partitions from the disk: of a deleted topic, or of replicas assigned elsewhere.

The directories leave their names in the order of the events (`disk_queue.py`); then the name may be used
again. The files go later, in a queue of their own, a few at a time. A partition that is wanted again when
its job runs is left alone.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from broker.metadata.topic import Topic
from broker.partitions.assigned import Assigned, Key
from broker.partitions.disk_queue import DiskQueue, in_thread
from broker.partitions.slices import slices
from storage.file_system import OutOfDescriptorsError, StorageError
from storage.log_directory import LogDirectory
from storage.pending_removal import PendingRemoval

logger = logging.getLogger(__name__)

GIVEN_UP_AT_ONCE: Final = 100
"""Partitions of a deleted topic whose waiting requests are answered in one step of the loop."""
_SWEEP_PAUSE_S: Final = 0.005
"""Pause between two slices of removed directories, so that the disk serves others too."""


class Removal:
    """Removes partitions that this broker does not hold any more.

    `give_up` is called on the loop for each partition, before its directory is renamed.
    """

    def __init__(
        self,
        logs: LogDirectory,
        assigned: Assigned,
        disk: DiskQueue,
        *,
        give_up: Callable[[Key, uuid.UUID], None],
        on_failure: Callable[[StorageError], None],
    ) -> None:
        self._logs = logs
        self._assigned = assigned
        self._disk = disk
        self._give_up = give_up
        self._sweeper = DiskQueue("removal of files", on_failure)
        self._topics: dict[uuid.UUID, asyncio.Future[None]] = {}
        """Deleted topics whose directories still have their names."""

    def remove_topic(self, topic: Topic) -> None:
        """Removes all partitions of a deleted topic."""
        self._topics[topic.topic_id] = self.remove(topic.name, topic.topic_id, topic.assignment)

    def remove(
        self, name: str, topic_id: uuid.UUID, indexes: Iterable[int]
    ) -> asyncio.Future[None]:
        """Removes partitions, unless they are assigned again by then; done when their names are free."""
        return self._disk.submit(partial(self._remove, name, topic_id, list(indexes)))

    def is_removing(self, topic_id: uuid.UUID) -> bool:
        """Whether the topic was deleted and its directories still have their names."""
        return topic_id in self._topics

    async def until_removed(self, topic: Topic) -> None:
        """Returns when the directories of a deleted topic have left their names."""
        while (removing := self._topics.get(topic.topic_id)) is not None:
            await asyncio.shield(removing)

    async def close(self) -> None:
        """Returns when no file is being removed; what is left waits for the next start."""
        await self._sweeper.close()

    async def _remove(self, name: str, topic_id: uuid.UUID, indexes: list[int]) -> None:
        try:
            for some in slices(indexes, GIVEN_UP_AT_ONCE):
                for key in ((name, index) for index in some):
                    if not self._assigned.includes(key, topic_id):
                        self._give_up(key, topic_id)
                await asyncio.sleep(0)
            keys = [
                key
                for key in ((name, index) for index in indexes)
                if self._logs.topic_ids.get(key) == topic_id
                and not self._assigned.includes(key, topic_id)
            ]
            if keys and self._logs.failure is None:
                pending = self._logs.forget(keys)
                try:
                    await in_thread(pending.run)
                except OutOfDescriptorsError as error:
                    # Not even a spare one: a topic of the same name must not find these directories.
                    raise StorageError(error.path, "partitions are removed by half") from error
                logger.info("removed %d partitions of topic %s from the disk", len(keys), name)
                self._sweeper.submit(partial(self._sweep, pending))
        finally:
            self._topics.pop(topic_id, None)

    async def _sweep(self, pending: PendingRemoval) -> None:
        """Removes the files; the next start removes what is left when the broker stops."""
        while not self._sweeper.is_closing and self._logs.failure is None:
            if not await in_thread(pending.remove_some):
                return
            await asyncio.sleep(_SWEEP_PAUSE_S)
