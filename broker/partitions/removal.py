"""Removal of partitions from the disk: of a deleted topic, or of replicas assigned elsewhere.

The directories leave their names in the order of the events (`disk_queue.py`); then the name may be used
again. A partition that is assigned again when its job runs is left alone.

The files go later, as in Kafka (`log_segment_delete_delay_ms`), a few at a time, and never while a partition
is made or renamed: removing them costs the disk what creating them did, and no one waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from echoless.broker.limited_log import LimitedLog
from echoless.broker.metadata.topic import Topic
from echoless.broker.partitions.assignment import BrokerAssignment, Key
from echoless.broker.partitions.disk_queue import DiskQueue, in_thread
from echoless.broker.partitions.slices import slices
from echoless.storage.file_system import OutOfDescriptorsError, StorageError
from echoless.storage.log_directory import LogDirectory
from echoless.storage.pending_removal import PendingRemoval

limited: Final = LimitedLog(logging.getLogger(__name__))
_ANYONE: Final = "any address"
"""Any client may create and delete topics: their lines share one allowance."""

GIVEN_UP_AT_ONCE: Final = 100
"""Partitions of a deleted topic whose waiting requests are answered in one step of the loop."""
_SWEEP_PAUSE_S: Final = 0.005
"""Pause between two slices of removed directories, so that the disk serves others too."""


class _Leaving(NamedTuple):
    """A deleted topic whose directories still have their names."""

    name: str
    done: asyncio.Future[None]


class Removal:
    """Removes partitions that this broker does not hold any more.

    `retire` is called on the loop for each partition, before its directory is renamed.
    """

    def __init__(
        self,
        logs: LogDirectory,
        assigned: BrokerAssignment,
        disk: DiskQueue,
        *,
        files_after_s: float,
        retire: Callable[[Key, uuid.UUID], None],
        on_failure: Callable[[StorageError], None],
    ) -> None:
        self._logs = logs
        self._assigned = assigned
        self._disk = disk
        self._retire = retire
        self._files_after_s = files_after_s
        self._sweeper = DiskQueue("removal of files", on_failure)
        self._is_closing = asyncio.Event()
        self._leaving: dict[uuid.UUID, _Leaving] = {}

    def remove_topic(self, topic: Topic) -> None:
        """Removes all partitions of a deleted topic."""
        done = self.remove(topic.name, topic.topic_id, topic.assignment)
        self._leaving[topic.topic_id] = _Leaving(topic.name, done)

    def remove(
        self, name: str, topic_id: uuid.UUID, indexes: Iterable[int]
    ) -> asyncio.Future[None]:
        """Removes partitions, unless they are assigned again by then; done when their names are free."""
        return self._disk.submit(partial(self._remove, name, topic_id, list(indexes)))

    def is_removing(self, topic_id: uuid.UUID) -> bool:
        """Whether the topic was deleted and its directories still have their names."""
        return topic_id in self._leaving

    async def until_removed(self, topic: Topic) -> None:
        """Returns when the directories of a deleted topic have left their names."""
        while (leaving := self._leaving.get(topic.topic_id)) is not None:
            await asyncio.shield(leaving.done)

    async def until_free(self, name: str) -> None:
        """Returns when no deleted topic of this name has directories under it."""
        while leaving := [one.done for one in self._leaving.values() if one.name == name]:
            await asyncio.shield(leaving[0])

    def sweep(self, pending: PendingRemoval, after_s: float = 0) -> None:
        """Removes the files of directories that have left their names, once nothing else is to be done."""
        due_s = asyncio.get_running_loop().time() + after_s
        self._sweeper.submit(partial(self._sweep, pending, due_s))

    async def swept(self) -> None:
        """Returns when no files are left to remove."""
        await self._sweeper.idle()

    async def close(self) -> None:
        """Returns when no file is being removed; what is left waits for the next start."""
        self._is_closing.set()
        await self._sweeper.close()

    async def _remove(self, name: str, topic_id: uuid.UUID, indexes: list[int]) -> None:
        try:
            for some in slices(indexes, GIVEN_UP_AT_ONCE):
                for key in ((name, index) for index in some):
                    if not self._assigned.includes(key, topic_id):
                        self._retire(key, topic_id)
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
                limited.log(
                    logging.INFO,
                    _ANYONE,
                    "%d partitions of topic %s have left their names, their files go later",
                    len(keys),
                    name,
                )
                self.sweep(pending, self._files_after_s)
        finally:
            self._leaving.pop(topic_id, None)

    async def _sweep(self, pending: PendingRemoval, due_s: float) -> None:
        """Removes the files; the next start removes what is left when the broker stops."""
        await self._pause(due_s - asyncio.get_running_loop().time())
        while not self._is_closing.is_set() and self._logs.failure is None:
            await self._disk.idle()
            if not await in_thread(pending.remove_some):
                return
            await self._pause(_SWEEP_PAUSE_S)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._is_closing.wait(), seconds)
