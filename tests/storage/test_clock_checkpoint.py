"""The file that keeps a data directory's clock, and what its clock is without it."""

from __future__ import annotations

import pytest

from echoless.storage.clock_checkpoint import ClockReading, last_reading, read_clock, write_clock
from echoless.storage.file_system import FileSystem
from echoless.storage.properties_file import PropertiesError
from tests.fakes.memory_file_system import MemoryFileSystem
from tests.storage.one_log import NOW_MS, OneLog

PATH = "/data/clock-checkpoint"


@pytest.fixture
def fs() -> MemoryFileSystem:
    """A disk with an empty data directory."""
    disk = MemoryFileSystem()
    disk.make_directory("/data")
    return disk


def test_what_was_written_is_read(fs: FileSystem) -> None:
    """The golden bytes of `docs/formats/data-directory.md`, there and back."""
    reading = ClockReading(1_795_225_533_353, 1_795_398_333_353)
    write_clock(fs, "/data", reading)
    assert fs.read_bytes(PATH).startswith(
        b"version=0\nsteady_ms=1795225533353\nwall_ms=1795398333353\n"
    )
    assert read_clock(fs, "/data") == last_reading(fs, "/data") == reading


def test_a_new_directory_has_no_clock_yet(fs: FileSystem) -> None:
    """The broker begins one."""
    assert last_reading(fs, "/data") is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version=0\nsteady_ms=1\n",
        b"steady_ms=x\nwall_ms=1\n",
        b"steady_ms=-1\nwall_ms=1\n",
        b"version=0\nsteady_ms=1\nwall_ms=99999999999999999\n",
        b"\xff\xfe",
    ],
)
@pytest.mark.parametrize("is_damaged", [True, False])
def test_without_the_file_the_clock_goes_on_at_the_newest_append(
    data: bytes, *, is_damaged: bool
) -> None:
    """A directory of an older version, or a damaged file: no producer ages by that."""
    one = OneLog()
    for number, now_ms in enumerate((NOW_MS, NOW_MS + 500, NOW_MS + 400)):
        one.append(producer_id=number, now_ms=now_ms)
    one.log.close()
    if is_damaged:
        one.fs.write_atomic(PATH, data)
        with pytest.raises(PropertiesError, match="clock-checkpoint"):
            read_clock(one.fs, "/data")
    newest = ClockReading(NOW_MS + 500, NOW_MS + 500)
    assert last_reading(one.fs, "/data") == newest


def test_a_damaged_snapshot_is_left_to_the_log(fs: FileSystem) -> None:
    """The next older one is used."""
    one = OneLog()
    one.append(producer_id=1, now_ms=NOW_MS)
    one.close_and_open()
    one.append(producer_id=1, sequence=1, now_ms=NOW_MS + 9)
    one.log.close()
    newest = max(one.files(".snapshot"))
    one.damage(newest, 3)
    assert newest in one.files(".snapshot")
    reading = last_reading(one.fs, "/data")
    assert reading is None or reading.steady_ms <= NOW_MS
