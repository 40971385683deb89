"""Logs that are set aside and restored: never a record less, whenever the power fails."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from echoless.protocol.record_batch import read_header
from echoless.storage import paths, strays
from echoless.storage.directory_checkpoints import PartitionOffsets
from echoless.storage.file_system import StorageError
from echoless.storage.log_directory import LogDirectory
from echoless.storage.strays import Stray, StrayError
from tests.fakes.memory_file_system import MemoryFileSystem, PowerFailure, keep_all, keep_none
from tests.storage.log_workload import CONFIG, DATA_DIR, make_batch, new_file_system, read_all

KEY = ("orders", 0)
TOPIC_ID, OTHER_ID = uuid.UUID(int=7), uuid.UUID(int=8)
NOW_MS = 1_795_000_000_123
REASON = "there is no topic orders"


def open_directory(fs: MemoryFileSystem) -> LogDirectory:
    return LogDirectory.open(
        DATA_DIR, broker_id=1, fs=fs, now_ms=NOW_MS, config_for=lambda _: CONFIG
    )


def prepared(fs: MemoryFileSystem, *, partitions: int = 1) -> bytes:
    """A cleanly closed directory; returns the records of `KEY`, of which two are deleted."""
    directory = open_directory(fs)
    for index in range(partitions):
        log = directory.create("orders", index, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        for sequence in range(9):
            batch = make_batch(producer_id=5, epoch=0, sequence=sequence)
            log.append(batch, read_header(batch), 0, NOW_MS)
        log.advance_log_start(2)
    content = read_all(directory.logs[KEY])
    directory.close(dict.fromkeys(directory.logs, 9))
    return content


def set_aside(fs: MemoryFileSystem) -> Stray:
    directory = open_directory(fs)
    directory.set_aside({KEY: REASON}, now_ms=NOW_MS)
    directory.close({})
    (stray,) = directory.strays
    return stray


def collect(fs: MemoryFileSystem) -> list[Stray]:
    problems: list[StorageError] = []
    found = strays.find_strays(fs, DATA_DIR, problems.append)
    assert not problems
    return found


def check_holds(directory: LogDirectory, content: bytes) -> None:
    log = directory.logs[KEY]
    assert (log.log_start_offset, log.log_end_offset) == (2, 9)
    assert read_all(log) == content
    entry = log.producers.get(5)
    assert entry is not None
    assert entry.last_sequence == 8


def test_a_log_is_set_aside_with_all_that_is_known_of_it(caplog: pytest.LogCaptureFixture) -> None:
    """Name, reason, figures and offsets; a line at ERROR says so, and how to get it back."""
    fs = new_file_system()
    prepared(fs)
    stray = set_aside(fs)
    assert collect(fs) == [stray]
    assert (stray.key, stray.topic_id, stray.reason) == (KEY, TOPIC_ID, REASON)
    assert (stray.records, stray.offsets) == (7, PartitionOffsets(9, 9, 2))
    assert stray.size_bytes > 700
    again = open_directory(fs)
    assert (again.logs, again.strays) == ({}, [stray])
    (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
    for part in ("orders-0", stray.name, "7 records", f"{stray.size_bytes} bytes", REASON):
        assert part in line.getMessage()
    assert "echoless strays" in line.getMessage()


def test_a_restored_log_is_what_it_was() -> None:
    """Records, deleted records, producers; another topic id where one was asked for."""
    fs = new_file_system()
    content = prepared(fs)
    strays.restore(fs, DATA_DIR, set_aside(fs), key=KEY, topic_id=OTHER_ID)
    directory = open_directory(fs)
    check_holds(directory, content)
    assert directory.topic_ids == {KEY: OTHER_ID}
    assert directory.strays == []
    assert directory.logs[KEY].recovery.batches_scanned > 0  # whatever the last shutdown was like
    directory.close({})
    assert open_directory(fs).logs[KEY].recovery.batches_scanned == 0


def test_a_place_that_is_taken_is_not_overwritten() -> None:
    """Neither by restoring nor by setting aside a second time in the same millisecond."""
    fs = new_file_system()
    prepared(fs)
    first = set_aside(fs)
    prepared(fs)
    with pytest.raises(StrayError, match="exists"):
        strays.restore(fs, DATA_DIR, first, key=KEY, topic_id=TOPIC_ID)
    directory = open_directory(fs)
    directory.set_aside({KEY: REASON}, now_ms=NOW_MS)
    assert len({stray.name for stray in collect(fs)}) == 2


def crash_everywhere(act: Callable[[MemoryFileSystem], object], prepare: Callable[[], MemoryFileSystem]) -> list[MemoryFileSystem]:  # fmt: skip
    """The remains after a power failure, or a kill, at each operation of `act`."""
    found: list[MemoryFileSystem] = []
    for operation in range(1000):
        fs = prepare()
        fs.lose_power_at = fs.operations + operation
        try:
            act(fs)
        except PowerFailure:
            found += [fs.after_power_loss(keep_none), fs.after_power_loss(keep_all)]
        else:
            assert operation > 5
            return found
    raise AssertionError("the action never ends")


@pytest.mark.slow
def test_setting_aside_may_be_cut_short_anywhere() -> None:
    """The log is in its place or set aside, with all its records, and the next start is not refused."""
    fs = new_file_system()
    content = prepared(fs)

    def prepare() -> MemoryFileSystem:
        fs = new_file_system()
        prepared(fs, partitions=2)
        return fs

    outcomes = set()
    for survivor in crash_everywhere(set_aside, prepare):
        directory = open_directory(survivor)
        assert ("orders", 1) in directory.logs
        is_in_place = KEY in directory.logs
        outcomes.add(is_in_place)
        if not is_in_place:
            directory.close({})
            (stray,) = collect(survivor)
            strays.restore(survivor, DATA_DIR, stray, key=KEY, topic_id=TOPIC_ID)
            directory = open_directory(survivor)
        check_holds(directory, content)
    assert outcomes == {True, False}


@pytest.mark.slow
def test_restoring_may_be_cut_short_anywhere() -> None:
    """The log is still set aside or in its place again, with all its records."""
    fs = new_file_system()
    content = prepared(fs)

    def prepare() -> MemoryFileSystem:
        fs = new_file_system()
        prepared(fs, partitions=2)
        set_aside(fs)
        return fs

    def restore(fs: MemoryFileSystem) -> None:
        (stray,) = collect(fs)
        strays.restore(fs, DATA_DIR, stray, key=KEY, topic_id=OTHER_ID)
        open_directory(fs)

    for survivor in crash_everywhere(restore, prepare):
        directory = open_directory(survivor)
        if KEY not in directory.logs:
            assert [stray.key for stray in directory.strays] == [KEY]
            directory.close({})
            restore(survivor)
            directory = open_directory(survivor.after_power_loss(keep_all))
        check_holds(directory, content)


def test_a_missing_directory_is_not_passed_over() -> None:
    """The checkpoints know records of it; an older stray of the same partition is no excuse."""
    fs = new_file_system()
    prepared(fs)
    set_aside(fs)
    directory = open_directory(fs)
    log = directory.create(*KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    batch = make_batch()
    log.append(batch, read_header(batch), 0, NOW_MS)
    directory.close({KEY: 1})
    fs.remove_tree(f"{DATA_DIR}/orders-0")
    for _ in range(2):
        with pytest.raises(
            StorageError, match=r"orders-0: .*is missing.*accept-loss /data orders-0"
        ):
            open_directory(fs)


@pytest.mark.parametrize("topic", ["orders", "a-1.b-2", "t" * 249])
def test_no_stray_is_taken_for_a_partition(topic: str) -> None:
    """Nor for one being deleted; names sort by time and fit the file system."""
    names = [
        paths.name_of(paths.stray_directory("/data", topic, 12345, NOW_MS + ms, "0" * 32))
        for ms in (0, 1, 900, 86_400_000)
    ]
    assert names == sorted(names)
    for name in names:
        assert paths.is_stray_directory(name)
        assert paths.parse_partition_directory(name) is None
        assert not paths.is_deleted_directory(name)
        assert len(name) <= 255


def test_facts_that_are_damaged_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    """The start continues; the log stays in place."""
    fs = new_file_system()
    prepared(fs)
    stray = set_aside(fs)
    path = f"{DATA_DIR}/{stray.name}/stray.properties"
    data = bytearray(fs.read_bytes(path))
    data[20] ^= 1
    fs.write_atomic(path, bytes(data))
    assert open_directory(fs).strays == []
    assert any(stray.name in record.getMessage() for record in caplog.records)
    assert fs.exists(f"{DATA_DIR}/{stray.name}")
