"""The batches that live producers' windows hold, as of the end of the segments that a pass cleans.

They come from the producer snapshot there, which a flush has written. What happened since may only have moved
batches out of a window, each within the time after which an idle producer is forgotten: that says how old a batch
is in the snapshot if no window can hold it any more. The newest batch of a producer stays as long as the log keeps that
of forgotten ones: a replica that begins with the log alone shall know them too.

The last marker of each producer in the snapshot is needed in the same way: it keeps late copies of itself from ending the
next transaction (`protocol/marker_decision.py`). Called by `cleaning.py`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Final

from echoless.protocol.leases import is_leased
from echoless.protocol.marker_decision import LastMarker
from echoless.storage import paths
from echoless.storage.file_system import FileSystem
from echoless.storage.log_config import LogConfig
from echoless.storage.producers.snapshot import read_snapshot

_PAUSE_PRODUCERS: Final = 256


class Remembered:
    """The last offsets of these batches, 8 bytes each."""

    __slots__ = ("_offsets", "last_markers")

    def __init__(self) -> None:
        self._offsets = array("q")
        self.last_markers: Mapping[int, LastMarker] = {}
        """By producer id."""

    def load(
        self, fs: FileSystem, directory: str, offset: int, config: LogConfig, steady_ms: int
    ) -> Iterator[None]:
        """Reads the snapshot of `offset`, in steps. Raises `SnapshotError`, `StorageError`.

        `steady_ms` is the time by the data directory's clock, as for `Log.expire_producers`.
        """
        snapshot = read_snapshot(fs, paths.offset_file(directory, offset, paths.SNAPSHOT))
        self.last_markers = snapshot.transactions.last_markers
        yield
        found: list[int] = []
        for count, (producer_id, entry) in enumerate(snapshot.items(), 1):
            kept_ms = config.producer_id_expiration_ms
            if is_leased(producer_id):
                kept_ms = max(kept_ms, config.leased_producer_expiration_ms)
            # A batch leaves the window with the append that comes as many batches after it as the window holds.
            idle_ms = steady_ms - entry.last_append_ms
            found += (
                batch.last_offset
                for newer, batch in enumerate(reversed(entry.batches))
                if (not newer and config.forgotten_max)
                or idle_ms < (config.window - newer) * kept_ms
            )
            if not count % _PAUSE_PRODUCERS:
                yield
        found.sort()
        self._offsets = array("q", found)

    def __contains__(self, last_offset: object) -> bool:
        assert isinstance(last_offset, int)
        place = bisect_left(self._offsets, last_offset)
        return place < len(self._offsets) and self._offsets[place] == last_offset
