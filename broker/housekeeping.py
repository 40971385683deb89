"""Housekeeping: what a running broker does every few seconds.

Old segments are given up, idle producers expire, recovery points and high watermarks are checkpointed,
files of deleted segments are removed, the clock is observed and saved. What needs the disk runs in a
thread, because produce requests must not wait for it.

A round looks at the partitions whose logs have changed since the last one (`Log.note_change`), and at those whose
oldest segment or oldest producer is due to go; what lies idle costs nothing. The cleaner and the scrubber are
passed what has changed once the checkpoints have it.

Invariant: a change of a log is forgotten only after a round with it has succeeded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from importlib import import_module
from typing import Final

from echoless.broker.clock import Clock
from echoless.broker.metrics import Metrics
from echoless.broker.partitions.disk_queue import in_thread
from echoless.broker.partitions.partition_registry import PartitionRegistry
from echoless.broker.partitions.retention import remove_old_segments
from echoless.storage.disk_work import RunAll
from echoless.storage.due_times import DueTimes
from echoless.storage.file_system import StorageError
from echoless.storage.log_directory import LogDirectory

INTERVAL_S: Final = 5.0
_CLOCK_SAVED_EVERY_MS: Final = 60_000
_LOOKED_AT_ONCE: Final = 100
"""Partitions in one step of the loop: a look at one takes some microseconds."""
_NEEDED_LATER: Final = (
    "msgpack",
    "echoless.storage.compaction.cleaning",
    "echoless.storage.pending_segment_removal",
    "echoless.storage.recovery",
)
"""Modules that a start does without, but whose import must not fail when they are needed: changes of a log write
snapshots, the cleaner is essential, old segments go when the disk is nearly full, and a directory may be found again."""


Key = tuple[str, int]
Listener = Callable[[Collection[Key]], None]


class Housekeeping:
    """The housekeeping of one broker. Single owner: the event loop."""

    def __init__(
        self,
        logs: LogDirectory,
        partitions: PartitionRegistry,
        clock: Clock,
        metrics: Metrics,
        *,
        run_all: RunAll,
        on_failure: Callable[[StorageError], None],
        doubt_of: Callable[[Clock], Awaitable[str | None]],
    ) -> None:
        """`doubt_of` compares the clock with other brokers', and says why nothing may be deleted by it."""
        self._logs = logs
        self._partitions = partitions
        self._clock = clock
        self._metrics = metrics
        self._run_all = run_all
        self._on_failure = on_failure
        self._doubt_of = doubt_of
        self._clock_saved_ms = 0
        self._retention: DueTimes[Key] = DueTimes()
        """When the oldest segment expires, by the clock that deletes."""
        self._expiry: DueTimes[Key] = DueTimes()
        """When the producer idle for longest expires, by the directory's clock."""
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Calls `listener` with the partitions that have changed, or are gone, once the checkpoints have it."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Runs one round every few seconds until it is cancelled or the log directory is offline."""
        await asyncio.sleep(INTERVAL_S)
        with contextlib.suppress(
            OSError
        ):  # no descriptor is left: the import is tried again when it is needed
            await in_thread(lambda: [*map(import_module, _NEEDED_LATER)])
        while True:
            try:
                await self.round()
            except StorageError as error:
                self._on_failure(error)
                if self._logs.failure is not None:
                    return
            await asyncio.sleep(INTERVAL_S)

    async def round(self) -> None:
        """Does everything once. Raises `StorageError`."""
        self._clock.observe()
        self._clock.set_doubt(await self._doubt_of(self._clock))
        self._metrics.wall_clock_steps_total = self._clock.steps_total
        self._partitions.open_missing()
        changed = self._logs.take_changed()
        due = self._retention.pop(self._clock.deletion_ms())
        due += self._expiry.pop(self._clock.steady_ms())
        looked_at = changed | dict.fromkeys(due)
        try:
            await self._look_at(looked_at)
            changed |= self._logs.take_changed()  # retention has moved log starts
            looked_at |= changed
            if changed:
                await self._checkpoint(changed)
            await remove_old_segments(self._partitions.held, looked_at, self._run_all)
        except BaseException:
            self._logs.note_changed(looked_at)
            raise
        for listener in self._listeners:
            listener(changed)
        await self._save_clock()

    async def _look_at(self, keys: Collection[Key]) -> None:
        """Gives up what is old in these partitions, and notes when there will be more."""
        held = self._partitions.held
        for count, key in enumerate(keys, 1):
            partition = held.get(key)
            if partition is None:
                continue  # deleted meanwhile, with its files
            log, start = partition.log, partition.log.log_start_offset
            log.retire_old_segments(self._clock.deletion_ms(), partition.high_watermark)
            if log.log_start_offset != start:
                partition.waiters.data.wake()
                partition.waiters.note_progress()
            if log.awaits_flush:  # no append may follow: what expires has to be flushed
                partition.mark_dirty()
            # A slice at a time, with requests in between.
            while log.expire_producers(self._clock.steady_ms()):  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(0)
            if held.get(key) is partition:
                self._retention.by(key, log.next_expiry_ms)
                self._expiry.by(key, log.producers.next_expiry_ms)
            if not count % _LOOKED_AT_ONCE:
                await asyncio.sleep(0)

    async def _checkpoint(self, changed: Collection[Key]) -> None:
        """Writes the offsets of what has changed; if newer ones came in between, the next round does."""
        held = self._partitions.held
        high_watermarks = {key: held[key].high_watermark for key in changed if key in held}
        checkpoint = self._logs.start_checkpoint(high_watermarks, changed)
        await in_thread(checkpoint.run)
        if not checkpoint.is_written:
            self._logs.note_changed(changed)

    async def _save_clock(self) -> None:
        """Saves the clock once a minute: after a crash, producers expire later by what was not saved."""
        reading = self._clock.reading()
        if reading.steady_ms >= self._clock_saved_ms + _CLOCK_SAVED_EVERY_MS:
            await in_thread(partial(self._logs.save_clock, reading))
            self._clock_saved_ms = reading.steady_ms
