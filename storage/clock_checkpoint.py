"""The clock of a data directory: `clock-checkpoint`.

A directory has a clock of its own, by which producers are idle. It goes on while a broker runs, stands
still while none does, and nobody sets it. Beside it the file keeps the time of day that went with it, so
that the next start can tell whether the wall clock has been set meanwhile.

Where the file is missing or damaged, the clock is taken to stand where the newest append of any
producer snapshot is: no producer ages by that.

Knows nothing of how the clock is driven (`broker/clock.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from storage import paths
from storage.file_system import FileSystem
from storage.producers.record import read_append_ms
from storage.producers.replay import snapshot_offsets
from storage.producers.snapshot import SnapshotError, read_snapshot
from storage.properties_file import PropertiesError, read_properties, write_properties

logger = logging.getLogger(__name__)

_VERSION: Final = "0"
_SEPARATOR: Final = "="
_TIME_MAX_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""


class ClockReading(NamedTuple):
    """One moment by two clocks, in milliseconds."""

    steady_ms: int
    """The time by the directory's own clock."""
    wall_ms: int
    """Since 1970, as far as the broker trusted the machine's clock."""


def write_clock(fs: FileSystem, data_dir: str, reading: ClockReading) -> None:
    """Replaces the file, durably. Raises `StorageError`."""
    properties = {name: str(value) for name, value in reading._asdict().items()}
    path = paths.join(data_dir, paths.CLOCK_CHECKPOINT)
    write_properties(fs, path, {"version": _VERSION, **properties}, _SEPARATOR)


def read_clock(fs: FileSystem, data_dir: str) -> ClockReading:
    """What was written last. Raises `PropertiesError`."""
    path = paths.join(data_dir, paths.CLOCK_CHECKPOINT)
    properties = read_properties(fs, path, _SEPARATOR, ClockReading._fields)
    reading = ClockReading(*(_number(path, properties[name]) for name in ClockReading._fields))
    if not all(_is_time(one) for one in reading):
        raise PropertiesError(path, f"holds impossible times: {properties}")
    return reading


def last_reading(fs: FileSystem, data_dir: str) -> ClockReading | None:
    """The reading from which the clock goes on; None if nothing in the directory tells."""
    if fs.exists(paths.join(data_dir, paths.CLOCK_CHECKPOINT)):
        try:
            return read_clock(fs, data_dir)
        except PropertiesError as error:
            logger.warning("%s; idle producers count from the newest snapshot instead", error)
    newest_ms = max(filter(_is_time, _append_times(fs, data_dir)), default=None)
    return None if newest_ms is None else ClockReading(newest_ms, newest_ms)


def _number(path: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise PropertiesError(path, f"{text!r} is no time") from error


def _is_time(ms: int) -> bool:
    return 0 <= ms <= _TIME_MAX_MS


def _append_times(fs: FileSystem, data_dir: str) -> Iterator[int]:
    for name in fs.list_directory(data_dir):
        directory = paths.join(data_dir, name)
        if paths.parse_partition_directory(name) is None or not fs.is_directory(directory):
            continue
        for offset in reversed(snapshot_offsets(fs, directory)):
            try:
                snapshot = read_snapshot(fs, paths.offset_file(directory, offset, paths.SNAPSHOT))
            except SnapshotError:
                continue  # opening the log deals with it
            yield from (read_append_ms(record) for _, record in snapshot.records())
            break
