"""The clock of a data directory: `clock-checkpoint`.

Each directory has a clock of its own, which measures how long producers are idle. It advances while a
broker runs, stops while none does, and no one sets it. The file also holds the wall-clock time of the
same moment, so that the next start can tell whether the wall clock has been set in between.

If the file is missing or damaged, the clock resumes at the newest append in any producer snapshot: no
producer ages by that.

Knows nothing of how the clock is driven (`broker/clock.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from echoless.storage import paths
from echoless.storage.file_system import FileSystem
from echoless.storage.producers.record import read_append_ms
from echoless.storage.producers.replay import snapshot_offsets
from echoless.storage.producers.snapshot import SnapshotError, read_snapshot
from echoless.storage.properties_file import PropertiesError, read_properties, write_properties

logger = logging.getLogger(__name__)

_VERSION: Final = "0"
_SEPARATOR: Final = "="
_TIME_MAX_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""


class ClockReading(NamedTuple):
    """The same moment on two clocks, in milliseconds."""

    steady_ms: int
    """The time on the directory's own clock."""
    wall_ms: int
    """The time since 1970, as far as the broker trusted the machine's clock."""


def write_clock(fs: FileSystem, data_dir: str, reading: ClockReading) -> None:
    """Replaces the file, durably. Raises `StorageError`."""
    properties = {name: str(value) for name, value in reading._asdict().items()}
    path = paths.join(data_dir, paths.CLOCK_CHECKPOINT)
    write_properties(fs, path, {"version": _VERSION, **properties}, _SEPARATOR)


def read_clock(fs: FileSystem, data_dir: str) -> ClockReading:
    """Reads the file. Raises `PropertiesError`."""
    path = paths.join(data_dir, paths.CLOCK_CHECKPOINT)
    properties = read_properties(fs, path, _SEPARATOR, ClockReading._fields)
    reading = ClockReading(*(_number(path, properties[name]) for name in ClockReading._fields))
    if not all(_is_time(one) for one in reading):
        raise PropertiesError(path, f"holds impossible times: {properties}")
    return reading


def last_reading(fs: FileSystem, data_dir: str) -> ClockReading | None:
    """The reading from which the clock resumes; None if nothing in the directory has one."""
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
        raise PropertiesError(path, f"{text!r} is not a time") from error


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
