"""Forces logs to disk in a thread, while the event loop goes on appending.

With `log_flush=commit` every append asks for a flush and is acknowledged when one that covers it is
done: appends that arrive during a flush share the next one (group commit). With `log_flush=os` a
flush every few seconds keeps the recovery point close to the end of the log, so that a restart
after `kill -9` has little to check; no one waits for it.

A failed flush takes the log directory offline: the kernel may have dropped the pages, so trying
again and succeeding would prove nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final

from echoless.broker.partitions.partition import Partition
from echoless.broker.threads import DISK
from echoless.storage.disk_work import RunAll, one_by_one
from echoless.storage.file_system import OutOfDescriptorsError, StorageError
from echoless.storage.pending_flush import PendingFlush

_RETRY_S: Final = 0.5
"""Pause after a flush for which no descriptor was left."""

logger = logging.getLogger(__name__)

FLUSHED_AT_ONCE: Final = 200
"""Logs whose flushes begin in one step of the loop, in about two milliseconds."""


class Flusher:
    """The one task that flushes. `on_failure` is called with the error that ends it."""

    def __init__(
        self,
        *,
        interval_s: float,
        on_failure: Callable[[StorageError], None],
        run_all: RunAll = one_by_one,
    ) -> None:
        self._interval_s = interval_s
        self._run_all = run_all
        self._on_failure = on_failure
        self._dirty: dict[Partition, None] = {}
        """A dictionary as an ordered set: logs are flushed in the order of their appends."""
        self._in_flush: dict[Partition, None] = {}
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        """For the first partition whose `flush.ms` will have passed."""

    def mark_dirty(self, partition: Partition) -> None:
        """Marks the partition as having appended since its last flush."""
        self._dirty[partition] = None
        if self._interval_s == 0:
            if not self._wake.is_set():
                self._wake.set()
        elif partition.flushes_early:
            self._wake_for(partition)

    def _wake_for(self, partition: Partition) -> None:
        """Has the partition flushed as soon as its topic asks for (`flush.messages`, `flush.ms`)."""
        rules, log = partition.rules, partition.log
        messages = rules.flush_messages
        if messages is not None and log.log_end_offset - log.recovery_point >= messages:
            self._wake.set()
        if rules.flush_ms is None:
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + rules.flush_ms / 1000
        if self._timer is None or due < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(due, self._timed_out)

    def _timed_out(self) -> None:
        self._timer = None
        self._wake.set()

    def forget(self, partition: Partition) -> None:
        """Drops the partition, which is being deleted."""
        self._dirty.pop(partition, None)
        self._in_flush.pop(partition, None)

    async def run(self) -> None:
        """Waits for dirty partitions (or the interval) and flushes them, until cancelled."""
        while True:
            if not self._wake.is_set():
                await self._wait()
            self._wake.clear()
            try:
                await self.flush()
            except OutOfDescriptorsError as error:
                self._on_failure(error)
                for partition in self._in_flush:
                    self.mark_dirty(partition)
                await asyncio.sleep(_RETRY_S)
            except StorageError as error:
                self._on_failure(error)
                return

    async def _wait(self) -> None:
        if not self._interval_s:
            await self._wake.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._interval_s):
                await self._wake.wait()

    async def flush(self) -> None:
        """Flushes what is dirty now, some logs at a time. Raises `StorageError`."""
        self._in_flush, self._dirty = self._dirty, {}
        while self._in_flush:
            await self._flush(list(islice(self._in_flush, FLUSHED_AT_ONCE)))

    async def _flush(self, partitions: Sequence[Partition]) -> None:
        pending = [
            (partition, partition.log.start_flush())
            for partition in partitions
            if partition.log.failure is None  # else a change of it failed half-way
            and not partition.log.is_changing  # it is marked dirty again when that is finished
        ]
        work = [flush.run for _, flush in pending]
        try:
            await DISK.run(partial(self._run_all, work))
        except OutOfDescriptorsError:
            _finish(pending)
            raise
        _finish(pending)
        for partition in partitions:
            self._in_flush.pop(partition, None)


def _finish(pending: Iterable[tuple[Partition, PendingFlush]]) -> None:
    """Publishes what was flushed; the rest will be flushed again."""
    for partition, flush in pending:
        partition.log.finish_flush(flush)
        if flush.is_done:
            partition.advance_high_watermark()
