"""Checks that the two index files of a segment agree with its batches.

Fed with every batch of the segment in order; an entry is checked at its batch.
"""

from __future__ import annotations

from collections import deque

from echoless.cli.data_files import OffsetEntry, TimeEntry, read_offset_entries, read_time_entries
from echoless.protocol.record_batch import BatchHeader
from echoless.storage import paths
from echoless.storage.file_system import StorageError
from echoless.storage.os_file_system import OsFileSystem


class IndexCheck:
    """The indexes of one segment. A missing file is no fault: it is rebuilt when needed."""

    def __init__(self, directory: str, base_offset: int) -> None:
        self.base_offset = base_offset
        self.faults: list[tuple[str, str]] = []
        """File and fault; only the first fault of each file."""
        self._offset_path = paths.offset_file(directory, base_offset, paths.OFFSET_INDEX)
        self._time_path = paths.offset_file(directory, base_offset, paths.TIME_INDEX)
        self._offsets: deque[OffsetEntry] = deque()
        self._times: deque[TimeEntry] = deque()
        self._newest = -1
        files = OsFileSystem()
        try:
            if files.exists(self._offset_path):
                self._offsets.extend(read_offset_entries(self._offset_path, base_offset))
        except StorageError as error:
            self._fault(self._offset_path, str(error))
        try:
            if files.exists(self._time_path):
                self._times.extend(read_time_entries(self._time_path, base_offset))
        except StorageError as error:
            self._fault(self._time_path, str(error))

    def see(self, position: int, header: BatchHeader) -> None:
        """Checks the next batch of the segment."""
        self._newest = max(self._newest, header.newest_record_ms)
        if self._offsets and self._offsets[0].position <= position:
            entry = self._offsets.popleft()
            if entry != (header.last_offset, position):
                self._fault(
                    self._offset_path,
                    f"{entry} is wrong: the batch at {position} ends with {header.last_offset}",
                )
                self._offsets.clear()
        if self._times and self._times[0].offset <= header.last_offset:
            time_entry = self._times.popleft()
            if time_entry != (self._newest, header.last_offset):
                self._fault(
                    self._time_path,
                    f"{time_entry} is wrong: the newest up to offset {header.last_offset} "
                    f"is {self._newest}",
                )
                self._times.clear()

    def give_up(self) -> None:
        """Stops after a damaged batch: the correct values of the remaining entries are unknown."""
        self._offsets.clear()
        self._times.clear()

    def finish(self) -> None:
        """Checks what is left at the end of the segment."""
        for path, left in ((self._offset_path, self._offsets), (self._time_path, self._times)):
            if left:
                self._fault(path, f"{left[0]} points past the end of the segment")

    def _fault(self, path: str, text: str) -> None:
        self.faults.append((path, text))
