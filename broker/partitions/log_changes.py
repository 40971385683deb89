"""Changes of followers' logs, made in threads: cuts, and replacements by an empty log.

A role that the cluster gives to the partition meanwhile takes effect when the change is finished;
resigning takes effect at once. `storage/pending_change.py` has the steps of a change. The flusher, retention and expiry leave the log out; its removal, and a stop, wait.

A change that has begun is finished, whatever becomes of the fetcher that asked for it. A
`StorageError` takes the log directory offline.

Invariant: while a thread changes a log, nothing else touches it, and this broker does not lead its
partition.

Called by `partition_registry.py` and the fetchers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from echoless.broker.essential_task import essential_task
from echoless.broker.metadata.node_data import LeaderAndIsr
from echoless.broker.partitions.partition import Partition
from echoless.broker.threads import DISK
from echoless.protocol.errors import DecodeError
from echoless.storage.disk_work import RunAll
from echoless.storage.file_system import StorageError
from echoless.storage.log import Log
from echoless.storage.pending_change import PendingChange
from echoless.storage.producers.snapshot import SnapshotError

logger = logging.getLogger(__name__)


@dataclass(slots=True, repr=False, eq=False)
class LogChange:
    """One change of a follower's log."""

    partition: Partition
    pending: PendingChange[Any]
    finished: Callable[[], None]
    """Called on the loop as soon as the log is what it was changed to."""

    def run(self) -> None:
        """Does the work, in a thread; an expected error is left in `pending`."""
        with contextlib.suppress(StorageError, SnapshotError):
            self.pending.run()

    def check(self) -> None:
        """Raises `StorageError`; `DecodeError` if the producer state that the leader sent is damaged."""
        error = self.pending.error
        if isinstance(error, SnapshotError):
            raise DecodeError(f"the leader's producer state: {error}") from error
        if error is not None:
            raise error


Role = tuple[LeaderAndIsr, tuple[int, ...]]
Update = Callable[[Partition, LeaderAndIsr, tuple[int, ...]], None]


@dataclass(slots=True, repr=False, eq=False)
class _UnderWay:
    """A log that is being changed."""

    partition: Partition | None
    """Its partition, which may be given up and held again meanwhile."""
    role: Role | None = None
    """The role that waits for the end of the change."""


class LogChanges:
    """The changes under way on one broker. Used from one event loop."""

    def __init__(
        self, *, run_all: RunAll, update: Update, on_failure: Callable[[StorageError], None]
    ) -> None:
        """`update` gives a partition its role; it is called with what `defers` has kept back."""
        self._run_all = run_all
        self._update = update
        self._on_failure = on_failure
        self._under_way: dict[Log, _UnderWay] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def make(self, changes: Sequence[LogChange]) -> None:
        """Returns when all changes are finished, each well or with an error (`LogChange.check`)."""
        for change in changes:
            self._under_way[change.partition.log] = _UnderWay(change.partition)
        task = essential_task(self._make(changes), "changes of logs")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    def defers(self, partition: Partition, state: LeaderAndIsr, replicas: tuple[int, ...]) -> bool:
        """Whether the log is being changed; the role is then given when that is finished."""
        under_way = self._under_way.get(partition.log)
        if under_way is None:
            return False
        under_way.role = state, replicas
        return True

    def held(self, partition: Partition) -> None:
        """Notes the partition that holds the log from now on."""
        under_way = self._under_way.get(partition.log)
        if under_way is not None:
            under_way.partition = partition

    def resigned(self, partition: Partition) -> None:
        """Forgets the role that was kept back: it is void."""
        under_way = self._under_way.get(partition.log)
        if under_way is not None:
            under_way.role = None

    def given_up(self, partition: Partition) -> None:
        """Forgets the partition, which this broker does not hold any more."""
        under_way = self._under_way.get(partition.log)
        if under_way is not None:
            under_way.partition = under_way.role = None

    async def close(self) -> None:
        """Returns when no thread changes a log; no roles are given any more."""
        for under_way in self._under_way.values():
            under_way.role = None
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _make(self, changes: Sequence[LogChange]) -> None:
        await DISK.run(partial(self._run_all, [change.run for change in changes]))
        for change in changes:
            self._finish(change)

    def _finish(self, change: LogChange) -> None:
        log, error = change.partition.log, change.pending.error
        log.finish_change(change.pending)
        under_way = self._under_way.pop(log)
        if isinstance(error, StorageError):
            message = "%s: a change failed half-way; restart the broker to use the log again: %s"
            logger.error(message, log.name, error)
            self._on_failure(error)
        partition = under_way.partition
        if partition is None:
            return  # its removal is queued, and closes the log
        if error is None:
            partition.follow_log()
            change.finished()
        if not isinstance(error, StorageError):
            partition.mark_dirty()  # the flush that was pending does not count
        if under_way.role is not None:
            self._update(partition, *under_way.role)
