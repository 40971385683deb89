"""The cleaner: compacts logs in the background, one at a time, the one with the largest dirty part first.

The work of a large pass is done by a process beside the broker, which ends with the round; that of a small one by a thread
(`cleaner_steps.py`), as a process takes a tenth of a second to begin. Only the swaps of finished segments touch a log. Where no
process can be had, or it has died, threads do all.

A partition that cannot be cleaned is tried again after a minute, then after two, and so on up to an hour; it
is named in a line at ERROR, on `/health` and in a metric until it has been cleaned. The others go on.

A round looks at the compacted logs that have changed since the last one (`note_changed`), and at those that time alone
may make due: an active segment to be closed, tombstones that may go, lags of the topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from echoless.broker.clock import Clock
from echoless.broker.config.names import Config
from echoless.broker.metrics import Metrics
from echoless.broker.network.loop_turn import LOOP_TURN
from echoless.broker.partitions.cleaner_steps import END, PassSteps, ProcessSteps, ThreadSteps
from echoless.broker.partitions.partition import Partition
from echoless.broker.threads import DISK
from echoless.storage.compaction.compaction import StalePassError, Uncleanable
from echoless.storage.compaction.plan import Pass
from echoless.storage.due_times import DueTimes
from echoless.storage.file_system import OutOfDescriptorsError, StorageError

if TYPE_CHECKING:
    from echoless.broker.partitions.cleaner_process import CleanerProcess
    from echoless.storage.compaction.cleaning import Cleaning, CleaningReport
    from echoless.storage.compaction.swap import Cleaned

logger = logging.getLogger(__name__)

Key = tuple[str, int]

PROCESS_BYTES: Final = 4_000_000
"""A pass over so much is large."""
_QUIET_S: Final = 0.1
"""Clients ask for something until so long after their last request: the next one is as near as the last."""
_FLUSH_WAIT_S: Final = 0.02
"""Pause before a swap is tried again that would meet a flush of the same segments."""
_RETRY_FIRST_S: Final = 60.0
_RETRY_MAX_S: Final = 3600.0

_SETTINGS: Final = frozenset(
    {"log_cleaner_backoff_ms", "log_cleaner_min_cleanable_ratio", "log_cleanup_policy"}
)
"""Settings of the broker by which a log may become due before the next look."""


class Cleaner:
    """The cleaner of one broker. `run` never returns; cancel it."""

    def __init__(
        self,
        partitions: Mapping[Key, Partition],
        uncleanable: dict[Key, Uncleanable],
        config: Config,
        clock: Clock,
        metrics: Metrics,
        *,
        on_failure: Callable[[StorageError], None],
        has_processes: bool = False,
    ) -> None:
        """`uncleanable` is kept up to date. `on_failure`: the disk failed where a log was half changed.

        `has_processes`: other processes see the same files.
        """
        self._partitions = partitions
        self._uncleanable = uncleanable
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._on_failure = on_failure
        self._has_processes = has_processes
        self._process: CleanerProcess | None = None
        self._requests = 0
        self._quiet_from_s = 0.0
        self._settings_changed = asyncio.Event()
        self._waiting: dict[Key, None] = dict.fromkeys(partitions)
        """Partitions to look at in the next round."""
        self._rolls: DueTimes[Key] = DueTimes()
        """When an idle segment is to be closed, by the directory's clock."""
        self._horizons: DueTimes[Key] = DueTimes()
        """When tombstones may go, by the wall clock."""

    async def settings_changed(self, names: frozenset[str]) -> None:
        """Looks for logs to clean at once: one may be due by the new settings."""
        if not names.isdisjoint(_SETTINGS):
            self.note_changed(self._partitions)
            self._settings_changed.set()

    def note_changed(self, keys: Iterable[Key]) -> None:
        """Looks at these partitions in the next round: they are new, have changed, or are gone."""
        self._waiting.update(dict.fromkeys(keys))

    async def run(self) -> None:
        """Looks for logs to clean, for ever."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.log_cleaner_backoff_ms / 1000):
                    await self._settings_changed.wait()
            self._settings_changed.clear()
            await self.clean_due()

    async def clean_due(self) -> int:
        """Cleans every log that is due; returns how many passes there were.

        None while the clock is in doubt: a pass takes tombstones away by it, and gives others their time to go.
        """
        if self._clock.doubt is not None:
            return 0
        for key in [key for key in self._uncleanable if key not in self._partitions]:
            del self._uncleanable[key]
        due: list[tuple[float, Key]] = []
        for key in self._take_waiting():
            partition = self._partitions.get(key)
            if partition is None or not partition.log.config.is_compacted:
                continue
            found = self._look(key, partition)
            if found is not None and found.is_due:
                due.append((found.dirty_ratio, key))
            self._wait(key, partition, found)
            await asyncio.sleep(0)
        cleaned = 0
        try:
            for _, key in sorted(due, reverse=True):
                partition_now = self._partitions.get(key)
                if partition_now is not None:
                    cleaned += await self._clean(key, partition_now)
        finally:
            if self._process is not None:
                process, self._process = self._process, None
                await process.end()
        return cleaned

    def _take_waiting(self) -> Iterable[Key]:
        waiting, self._waiting = self._waiting, {}
        rolls = self._rolls.pop(self._clock.steady_ms())
        horizons = self._horizons.pop(self._clock.trusted_wall_ms())
        return waiting | dict.fromkeys([*rolls, *horizons])

    def _wait(self, key: Key, partition: Partition, found: Pass | None) -> None:
        """Has the log looked at again when time may have changed something; a change of the log does so by itself."""
        log = partition.log
        has_lags = log.compaction.has_dirty_segments and log.config.compaction_rules.has_lags
        if key in self._uncleanable or has_lags or (found is not None and found.is_due):
            self._waiting[key] = None
        self._rolls.by(key, log.idle_roll_ms)
        self._horizons.by(key, log.compaction.horizon_ms)

    def _look(self, key: Key, partition: Partition) -> Pass | None:
        """Plans a pass over the log; closes an idle segment first, since only closed ones can be cleaned."""
        log = partition.log
        failed = self._uncleanable.get(key)
        if log.failure is not None or log.is_changing:
            return None
        if failed is not None and asyncio.get_running_loop().time() < failed.retry_s:
            return None
        try:
            if log.roll_if_idle(self._clock.steady_ms()):
                partition.mark_dirty()
            return log.compaction.look(
                log.config,
                log_start_offset=log.log_start_offset,
                log_end_offset=log.log_end_offset,
                limit=partition.last_stable_offset,
                now_ms=self._clock.trusted_wall_ms(),
            )
        except StorageError as error:
            self._failed(key, error)
            return None

    async def _clean(self, key: Key, partition: Partition) -> bool:
        found = self._look(key, partition)
        if found is None or not found.is_due:
            return False
        log, begun_s = partition.log, LOOP_TURN.clock()
        cleaning = log.compaction.start(
            found,
            log.config,
            map_bytes_max=self._config.log_cleaner_dedupe_buffer_size,
            now_ms=self._clock.trusted_wall_ms(),
            steady_ms=self._clock.steady_ms(),
        )
        steps: PassSteps | None = None
        try:
            steps = await self._steps(cleaning, found.clean_bytes + found.dirty_bytes)
            await self._carry_out(key, partition, steps)
        except StalePassError:
            return False
        except AssertionError:
            raise
        except ChildProcessError as error:
            self._lost(error)
            self._waiting[key] = None
            await DISK.run(log.compaction.remove_leftovers)
            return False
        except OutOfDescriptorsError as error:
            logger.warning("%s is cleaned later: %s", log.name, error)
            return False
        except Exception as error:  # noqa: BLE001 - a log that cannot be cleaned must not end the cleaner
            if self._is_held(key, partition) and not log.compaction.is_stale:
                self._failed(key, error)
            return False
        finally:
            if steps is not None:
                self._count(steps.report)
        if self._uncleanable.pop(key, None) is not None:
            logger.info("%s could be cleaned again", log.name)
        self._metrics.compaction_passes_total += 1
        self._metrics.compaction_ms_total += round((LOOP_TURN.clock() - begun_s) * 1000)
        _log_pass(log.name, steps.report, LOOP_TURN.clock() - begun_s)
        return True

    async def _steps(self, cleaning: Cleaning, size: int) -> PassSteps:
        """The steps of a pass over so many bytes, by the process if they are many."""
        if self._process is None and self._has_processes and size >= PROCESS_BYTES:
            from echoless.broker.partitions.cleaner_process import CleanerProcess

            try:
                self._process = await CleanerProcess.start()
            except ChildProcessError as error:
                self._lost(error)
        if self._process is None or size < PROCESS_BYTES:
            return ThreadSteps(cleaning)
        return ProcessSteps(cleaning, self._process)

    def _lost(self, error: ChildProcessError) -> None:
        """Does without processes from now on."""
        self._process, self._has_processes = None, False
        logger.warning("compaction is left to a thread from now on, and slower: %s", error)

    def _is_held(self, key: Key, partition: Partition) -> bool:
        """Whether the partition is still this broker's: its files go once it is not."""
        return self._partitions.get(key) is partition

    async def _carry_out(self, key: Key, partition: Partition, steps: PassSteps) -> None:
        from echoless.storage.compaction.swap import Cleaned

        log = partition.log
        while (step := await self._slice(steps)) is not END:
            if not self._is_held(key, partition):
                await steps.close()
                raise StalePassError(log.name)
            if isinstance(step, Cleaned):
                await self._swap(key, partition, step)
            elif log.compaction.is_stale or log.failure is not None:
                await steps.close()
                raise StalePassError(log.name)
        log.note_pass(steps.report)

    async def _slice(self, steps: PassSteps) -> object:
        """Does some of the work, then pauses; returns a segment to swap, None, or the end."""
        before, begun_s = _moved(steps.report), LOOP_TURN.clock()
        step = await steps.advance(is_busy=self._is_busy(begun_s))
        ended_s = LOOP_TURN.clock()
        moved = _moved(steps.report) - before
        limited_s = moved / self._config.log_cleaner_io_max_bytes_per_second
        await steps.pause(ended_s - begun_s, limited_s, is_busy=self._is_busy(ended_s))
        return step

    def _is_busy(self, now_s: float) -> bool:
        """Whether clients ask for something."""
        requests = sum(self._metrics.requests.values())
        if requests != self._requests:
            self._requests = requests
            self._quiet_from_s = now_s + _QUIET_S
        return now_s < self._quiet_from_s

    async def _swap(self, key: Key, partition: Partition, cleaned: Cleaned) -> None:
        """Puts a segment in place. Raises `StalePassError`, `StorageError`."""
        log = partition.log
        try:
            swap = log.compaction.start_swap(cleaned, log.config)
            while swap is None:
                await asyncio.sleep(_FLUSH_WAIT_S)
                if not self._is_held(key, partition):
                    raise StalePassError(log.name)  # noqa: TRY301
                swap = log.compaction.start_swap(cleaned, log.config)
        except StalePassError:
            await DISK.run(log.compaction.remove_leftovers)
            raise
        # If this task is cancelled, closing the log ends the swap.
        try:
            await DISK.run(swap.run)
        except StorageError as error:
            log.finish_swap(swap)
            if swap.error is not None:
                self._on_failure(error)
            raise
        log.finish_swap(swap)
        if not swap.is_done:  # the log was changed before it could begin
            await DISK.run(log.compaction.remove_leftovers)
            raise StalePassError(log.name)
        if self._is_held(key, partition):  # no flush may look for files that are going
            partition.mark_dirty()  # the next flush writes the new segment's indexes

    def _failed(self, key: Key, error: Exception) -> None:
        before = self._uncleanable.get(key)
        delay_s = min(2 * before.delay_s, _RETRY_MAX_S) if before is not None else _RETRY_FIRST_S
        retry_s = asyncio.get_running_loop().time() + delay_s
        self._uncleanable[key] = Uncleanable(*key, str(error), delay_s, retry_s)
        self._metrics.compaction_failures_total += 1
        logger.error(
            "%s-%d cannot be compacted and keeps growing; the next attempt is in %d s: %s",
            *key,
            delay_s,
            error,
            exc_info=None if isinstance(error, StorageError) else error,
        )

    def _count(self, report: CleaningReport) -> None:
        metrics = self._metrics
        metrics.compaction_read_bytes_total += report.bytes_read
        metrics.compaction_written_bytes_total += report.bytes_written
        metrics.compaction_removed_bytes_total += report.bytes_before - report.bytes_after


def _moved(report: CleaningReport) -> int:
    """Bytes that were read and written so far."""
    return report.bytes_read + report.bytes_written


def _log_pass(name: str, report: CleaningReport, took_s: float) -> None:
    logger.info(
        "%s: compacted up to offset %d in %.1f s: %d keys, %d bytes read, %d bytes became %d",
        name,
        report.cleaned_to,
        took_s,
        report.keys,
        report.bytes_read,
        report.bytes_before,
        report.bytes_after,
    )
