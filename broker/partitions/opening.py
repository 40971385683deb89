"""Opening of partitions that are assigned to this broker and have no directory yet.

Directories are made in threads, a slice at a time, in the order of the events (`disk_queue.py`). A
partition that is not wanted any more when its slice is ready is left to the removal that was queued
meanwhile. A new topic `is_new` until all of its partitions here take records; until then clients are
not notified of it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from echoless.broker.garbage import Freezer
from echoless.broker.metadata.topic import Topic
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.partitions.assignment import BrokerAssignment
from echoless.broker.partitions.disk_queue import DiskQueue, in_thread
from echoless.broker.partitions.slices import slices
from echoless.storage.file_system import StorageError
from echoless.storage.log import Log
from echoless.storage.log_config import LogConfig
from echoless.storage.log_directory import LogDirectory

MADE_AT_ONCE: Final = 20
"""Partitions whose directories are made in one go in a thread and then held, in one step of the loop."""


@dataclass(slots=True, repr=False, eq=False)
class _Pending:
    """The partitions of one topic that are being opened."""

    is_new: bool
    """Whether the topic is."""
    done: asyncio.Future[None]
    """Done when the last job is."""
    indexes: set[int] = field(default_factory=set)
    jobs: int = 0


class PartitionOpener:
    """Makes the logs of partitions; `hold` is called on the loop with those that are ready."""

    def __init__(
        self,
        logs: LogDirectory,
        registry: TopicRegistry,
        assigned: BrokerAssignment,
        disk: DiskQueue,
        *,
        log_configs: Callable[[Topic], Callable[[int], LogConfig]],
        now_ms: Callable[[], int],
        hold: Callable[[Topic, Sequence[int]], None],
    ) -> None:
        self._logs = logs
        self._registry = registry
        self._assigned = assigned
        self._disk = disk
        self._log_configs = log_configs
        self._now_ms = now_ms
        self._hold = hold
        self._freezer = Freezer()
        self._pending: dict[uuid.UUID, _Pending] = {}

    def open(self, topic: Topic, indexes: Sequence[int], *, is_new: bool) -> None:
        """Queues the making of the partitions' directories, after all jobs that are queued already."""
        done = self._disk.submit(partial(self._make_all, topic.topic_id, indexes))
        pending = self._pending.setdefault(topic.topic_id, _Pending(is_new, done))
        pending.done = done
        pending.indexes.update(indexes)
        pending.jobs += 1

    def is_new(self, topic: Topic) -> bool:
        """Whether the topic is new, and not all of its partitions here take records yet."""
        pending = self._pending.get(topic.topic_id)
        return pending is not None and pending.is_new

    def indexes(self, topic: Topic) -> Collection[int]:
        """The partitions of the topic that do not take records yet."""
        pending = self._pending.get(topic.topic_id)
        return () if pending is None else pending.indexes

    async def until_done(self, topic: Topic) -> None:
        """Returns when no partition of the topic is being opened."""
        while (pending := self._pending.get(topic.topic_id)) is not None:
            await asyncio.shield(pending.done)

    async def _make_all(self, topic_id: uuid.UUID, indexes: Sequence[int]) -> None:
        pending = self._pending[topic_id]
        try:
            for some in slices(indexes, MADE_AT_ONCE):
                if self._logs.failure is not None or self._disk.is_closing:
                    return
                await self._make_some(topic_id, some)
                pending.indexes.difference_update(some)
                self._freezer.made(len(some))
        finally:
            pending.indexes.difference_update(indexes)
            pending.jobs -= 1
            if not pending.jobs:
                del self._pending[topic_id]

    async def _make_some(self, topic_id: uuid.UUID, indexes: Sequence[int]) -> None:
        topic = self._registry.topics_by_id.get(topic_id)
        if topic is None:
            return
        wanted = [
            index
            for index in indexes
            if self._assigned.includes((topic.name, index), topic_id)
            and (topic.name, index) not in self._logs.logs
        ]
        made = await in_thread(partial(self._make, topic, wanted, self._log_configs(topic)))
        for index, log in made:
            self._logs.add(topic.name, index, topic_id, log)
        now = self._registry.topics_by_id.get(topic_id)
        if now is None:
            return  # its removal is queued after this job
        self._hold(
            now,
            [index for index, _ in made if self._assigned.includes((now.name, index), topic_id)],
        )

    def _make(
        self, topic: Topic, indexes: Iterable[int], config_of: Callable[[int], LogConfig]
    ) -> list[tuple[int, Log]]:
        """Makes directories and logs in a thread; touches nothing but the disk."""
        made: list[tuple[int, Log]] = []
        try:
            for index in indexes:
                log = self._logs.make(
                    topic.name, index, topic.topic_id, config_of(index), now_ms=self._now_ms()
                )
                made.append((index, log))
        except StorageError:
            for _, log in made:
                log.abandon()
            raise
        return made
