"""The scrubber: rereads closed segments in the background, and reports which are damaged.

Every segment is read once after the start, and again a week later; at most so many bytes per
second, a piece of some KB at a time in a thread, so that neither the loop nor the disk is held up.
Damaged data stays in the log: consumers and followers get what can be read, and see the wrong CRC
themselves. It is reported by a line at ERROR, on `/health` and in a metric, until the segment is
gone.

A look goes through the logs that have changed since the last one (`note_changed`), and those with a segment that is due.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

from echoless.broker.metrics import Metrics
from echoless.broker.threads import DISK
from echoless.storage.due_times import DueTimes
from echoless.storage.file_system import CorruptLogError, FileSystem, StorageError
from echoless.storage.scrub import ClosedSegment, Damage, SegmentScrub

logger = logging.getLogger(__name__)

PIECE_BYTES: Final = 64 * 1024
"""One step in the thread: a few hundred small batches, about a millisecond."""
_LOOK_AGAIN_S: Final = 60.0
"""Time between looks for segments that are due; the first look comes that long after the start."""
_AGAIN_AFTER_S: Final = 7 * 24 * 3600.0

Partition = tuple[str, int]


class ScrubbedLog(Protocol):
    """A log, as far as the scrubber needs it."""

    def closed_segments(self) -> list[ClosedSegment]: ...


class Scrubber:
    """The scrubber of one broker. `run` never returns; cancel it."""

    def __init__(
        self,
        fs: FileSystem,
        logs: Mapping[Partition, ScrubbedLog],
        damaged: dict[str, Damage],
        metrics: Metrics,
        *,
        bytes_per_s: int,
        monotonic_s: Callable[[], float],
    ) -> None:
        """`damaged` is kept up to date, by path."""
        self._fs = fs
        self._logs = logs
        self._damaged = damaged
        self._metrics = metrics
        self._bytes_per_s = bytes_per_s
        self._monotonic_s = monotonic_s
        self._waiting: dict[Partition, None] = dict.fromkeys(logs)
        """Logs to go through at the next look."""
        self._due_s: DueTimes[Partition] = DueTimes()
        """When a segment of each log is to be read again."""
        self._scrubbed_s: dict[Partition, dict[str, float]] = {}
        """When each segment was read, by log and path."""

    def note_changed(self, keys: Iterable[Partition]) -> None:
        """Goes through these logs at the next look: they are new, have changed, or are gone."""
        self._waiting.update(dict.fromkeys(keys))

    async def run(self) -> None:
        """Looks for segments that are due, for ever."""
        while True:
            await asyncio.sleep(_LOOK_AGAIN_S)
            await self.scrub_due()

    async def scrub_due(self) -> None:
        """Reads every segment that is due."""
        waiting, self._waiting = self._waiting, {}
        for key in waiting | dict.fromkeys(self._due_s.pop(self._monotonic_s())):
            segments = self._closed_segments(key)
            scrubbed_s = self._scrubbed_s.setdefault(key, {})
            for path in scrubbed_s.keys() - {segment.path for segment in segments}:
                del scrubbed_s[path]
                self._damaged.pop(path, None)
            for segment in segments:
                if self._is_due(key, segment) and not await self._scrub(key, segment):
                    self._waiting[key] = None
            if scrubbed_s:
                self._due_s.by(key, min(scrubbed_s.values()) + _AGAIN_AFTER_S)
            else:
                del self._scrubbed_s[key]
            await asyncio.sleep(0)

    def _closed_segments(self, key: Partition) -> list[ClosedSegment]:
        log = self._logs.get(key)
        return [] if log is None else log.closed_segments()

    def _is_due(self, key: Partition, segment: ClosedSegment) -> bool:
        scrubbed_s = self._scrubbed_s[key].get(segment.path)
        return scrubbed_s is None or self._monotonic_s() - scrubbed_s >= _AGAIN_AFTER_S

    async def _scrub(self, key: Partition, segment: ClosedSegment) -> bool:
        """Reads one segment; returns whether that was possible: otherwise it stays due."""
        try:
            damage = await self._find_damage(segment)
        except StorageError:
            return False  # it was removed meanwhile, or no descriptor is left
        if segment not in self._closed_segments(key):
            return False  # it was cut or removed meanwhile
        self._scrubbed_s[key][segment.path] = self._monotonic_s()
        if damage is None:
            self._damaged.pop(segment.path, None)
            return True
        self._damaged[segment.path] = Damage(*key, segment.path, damage.position, damage.reason)
        logger.error(
            "the closed segment %s is damaged at position %d: %s; offsets up to %d may not be readable. "
            "Stop the broker and bring a copy of the file back, or delete the replica so that it is "
            "fetched again from its leader",
            segment.path,
            damage.position,
            damage.reason,
            segment.next_offset - 1,
        )
        return True

    async def _find_damage(self, segment: ClosedSegment) -> CorruptLogError | None:
        """Reads it to its end or first damage. Raises `StorageError` if it cannot be opened."""
        scrub = await DISK.run(partial(SegmentScrub, self._fs, segment, PIECE_BYTES))
        try:
            while count := await DISK.run(scrub.step):
                self._metrics.scrubbed_bytes_total += count
                await asyncio.sleep(count / self._bytes_per_s)
        except CorruptLogError as damage:
            return damage
        except StorageError as error:
            return CorruptLogError(segment.path, 0, str(error))
        finally:
            scrub.close()
        return None
