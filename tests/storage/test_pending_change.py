"""Cuts and replacements of a log in another thread, and what its owner may do meanwhile."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from echoless.storage.directory_checkpoints import DirectoryCheckpoints
from echoless.storage.file_system import StorageError
from echoless.storage.log import Log
from echoless.storage.opening import LogOpening
from echoless.storage.os_file_system import OsFileSystem
from echoless.storage.pending_change import PendingChange
from echoless.storage.producers.snapshot import SnapshotError
from tests.fakes.memory_file_system import MemoryFileSystem, PowerFailure
from tests.storage.log_workload import Facts, new_file_system
from tests.storage.one_log import NOW_MS, SMALL, OneLog
from tests.storage.test_replacement import (
    KEY,
    append,
    check_new,
    check_old_or_new,
    facts_by_end,
    facts_of,
    open_directory,
    prepared,
    snapshot_at,
    survivors,
)

Start = Callable[[Log], PendingChange[Any]]
Check = Callable[[MemoryFileSystem, dict[int, Facts]], None]
FLUSHED = 15
"""The end of the flushed part of the log of `prepared`."""


def cut_at(offset: int) -> Start:
    def start(log: Log) -> PendingChange[Any]:
        change = log.start_truncation(offset)
        assert change is not None
        return change

    return start


def begin_at(offset: int) -> Start:
    def start(log: Log) -> PendingChange[Any]:
        return log.start_replacement(offset, snapshot_at(offset), clock_ahead_ms=0, now_ms=NOW_MS)

    return start


def check_cut(offset: int) -> Check:
    def check(fs: MemoryFileSystem, old: dict[int, Facts]) -> None:
        log = open_directory(fs).logs[KEY]
        assert log.log_end_offset >= min(offset, FLUSHED)
        assert facts_of(log) == old[log.log_end_offset]

    return check


def check_begun(offset: int) -> Check:
    def check(fs: MemoryFileSystem, old: dict[int, Facts]) -> None:
        check_old_or_new(fs, offset, old)

    return check


CHANGES = [
    *((cut_at(offset), check_cut(offset)) for offset in (11, 13, 17)),
    *((begin_at(offset), check_begun(offset)) for offset in (3, 12, 50)),
]


@pytest.mark.parametrize(("start", "check"), CHANGES)
def test_a_checkpoint_at_any_moment_before_a_crash_does_no_harm(start: Start, check: Check) -> None:
    """Memory still has the old offsets while the files change: the checkpoint must not write them."""
    old = facts_by_end()
    operations = run_with_checkpoint(start, operation=-1).operations
    for operation in range(operations + 1):
        fs = run_with_checkpoint(start, operation)
        for survivor in survivors(fs, operation):
            check(survivor, old)


def run_with_checkpoint(start: Start, operation: int) -> MemoryFileSystem:
    """Writes a checkpoint before an operation of the change, and then the power fails at once.

    There is no checkpoint while the change writes to its files itself: that waits. The operations are
    counted from the start of the change.
    """
    fs = new_file_system()
    directory = prepared(fs)
    change = start(directory.logs[KEY])
    fs.operations = 0
    operate = fs.operate

    def operate_after_checkpoint(path: str, verb: str) -> None:
        if fs.operations == operation and not directory._checkpoints._lock.locked():
            fs.operate = operate  # type: ignore[method-assign]
            directory.checkpoint({KEY: FLUSHED})
            fs.lose_power_at = fs.operations
        operate(path, verb)

    fs.operate = operate_after_checkpoint  # type: ignore[method-assign]
    with contextlib.suppress(PowerFailure):
        change.run()
        if fs.operations == operation:
            fs.operate = operate  # type: ignore[method-assign]
            directory.checkpoint({KEY: FLUSHED})
    return fs


@pytest.mark.parametrize("offset", [11, 13])
def test_no_offset_on_disk_is_above_a_cut_that_is_not_finished(offset: int) -> None:
    """A checkpoint that begins after the cut was made, and before the owner knows it, is one of it."""
    directory = prepared(fs := new_file_system())
    log = directory.logs[KEY]
    change = cut_at(offset)(log)
    change.run()
    directory.checkpoint({KEY: FLUSHED})
    assert max(on_disk(fs)) <= offset
    late = directory.start_checkpoint({KEY: FLUSHED})
    log.finish_change(change)
    late.run()
    assert max(on_disk(fs)) <= offset
    directory.checkpoint({KEY: offset})
    assert on_disk(fs) == (offset, offset, 11)


def on_disk(fs: MemoryFileSystem) -> tuple[int, int, int]:
    return DirectoryCheckpoints(fs, "/data").read().of(KEY)


@pytest.mark.parametrize("start", [cut_at(13), begin_at(50)])
def test_nothing_else_is_done_with_a_log_that_is_changing(start: Start) -> None:
    """No batch is taken, nothing is flushed, nothing expires and no segment goes."""
    log = prepared(new_file_system()).logs[KEY]
    change = start(log)
    change.run()
    assert log.is_changing
    for forbidden in (
        lambda: append(log, range(20, 21)),
        log.start_flush,
        lambda: log.truncate_to(12),
        lambda: start(log),
    ):
        with pytest.raises(AssertionError, match="is being cut or replaced"):
            forbidden()
    assert log.start_removal() is None
    assert log.expire_producers(NOW_MS + 10**12) == 0
    assert log.delete_old_segments(NOW_MS + 10**12) == 0
    log.finish_change(change)
    assert not log.is_changing
    log.flush()


def test_a_flush_that_runs_into_a_cut_does_not_count() -> None:
    """It may have synced what was cut off since; the next flush does everything again."""
    directory = prepared(fs := new_file_system())
    log = directory.logs[KEY]
    flush = log.start_flush()
    change = cut_at(13)(log)
    flush.run()
    change.run()
    log.finish_flush(flush)
    log.finish_change(change)
    assert log.recovery_point == 13
    append(log, range(13, 16))
    log.flush()
    assert log.recovery_point == 16
    directory.checkpoint({KEY: 13})
    survivor = open_directory(fs.after_power_loss()).logs[KEY]
    assert survivor.log_end_offset == 16


def test_a_log_is_configured_while_it_changes() -> None:
    """The new producers get the configuration of the end of the change."""
    one = OneLog()
    one.fill(10)
    change = cut_at(8)(one.log)
    change.run()
    one.log.reconfigure(replace(one.config, window=1))
    one.log.finish_change(change)
    (_, entry) = next(iter(one.log.producers.items()))
    assert len(entry.batches) == 1
    assert one.log.producers.window == 1


@pytest.mark.parametrize("has_run", [False, True])
def test_closing_completes_what_is_under_way(has_run: bool) -> None:
    """A clean stop leaves the log as it was changed to."""
    directory = prepared(fs := new_file_system())
    change = begin_at(50)(directory.logs[KEY])
    if has_run:
        change.run()
    directory.close({KEY: FLUSHED})
    reopened = open_directory(fs)
    assert reopened.was_clean
    check_new(reopened.logs[KEY], 50)


@pytest.mark.parametrize("has_run", [False, True])
@pytest.mark.parametrize("start", [cut_at(13), begin_at(50)])
def test_a_log_that_is_removed_is_not_changed_any_more(start: Start, has_run: bool) -> None:
    """Its files are closed and its directory is renamed: no thread may touch them."""
    directory = prepared(fs := new_file_system())
    log = directory.logs[KEY]
    change = start(log)
    if has_run:
        change.run()
    directory.delete(*KEY)
    before = fs.operations
    change.run()
    log.finish_change(change)
    assert fs.operations == before
    directory.create(*KEY, uuid.UUID(int=8), log.config, now_ms=NOW_MS)
    directory.checkpoint({KEY: 0})
    directory.close({KEY: 0})
    assert open_directory(fs).logs[KEY].log_end_offset == 0


def test_a_change_that_fails_disables_the_log() -> None:
    """Memory and disk may disagree; its offsets on disk stay as they are."""
    directory = prepared(fs := new_file_system())
    log = directory.logs[KEY]
    change = cut_at(13)(log)
    fs.fail_at = fs.operations + 6
    with pytest.raises(StorageError):
        change.run()
    log.finish_change(change)
    assert not log.is_changing
    for forbidden in (lambda: append(log, range(20, 21)), log.start_flush):
        with pytest.raises(StorageError, match="failure ordered"):
            forbidden()
    before = on_disk(fs)
    directory.checkpoint({KEY: FLUSHED + 1})
    assert on_disk(fs) == before


def test_a_damaged_snapshot_opens_the_log_again() -> None:
    """It is found before the first step."""
    log = prepared(new_file_system()).logs[KEY]
    damaged = log.start_replacement(50, snapshot_at(50)[:-1], clock_ahead_ms=0, now_ms=NOW_MS)
    with pytest.raises(SnapshotError):
        damaged.run()
    log.finish_change(damaged)
    append(log, range(20, 21))
    log.flush()
    assert log.recovery_point == 21


def test_a_damaged_snapshot_ends_the_flush_that_the_change_took_over() -> None:
    """The log is open again, and no later change or stop knows of that flush."""
    log = prepared(fs := new_file_system()).logs[KEY]
    flush = log.start_flush()
    damaged = log.start_replacement(50, snapshot_at(50)[:-1], clock_ahead_ms=0, now_ms=NOW_MS)
    with pytest.raises(SnapshotError):
        damaged.run()
    log.finish_change(damaged)
    log.reset_to(50, snapshot_at(50), clock_ahead_ms=0, now_ms=NOW_MS)
    before = fs.operations
    flush.run()
    assert (flush.is_done, fs.operations) == (False, before)
    check_new(log, 50)


class FailingFileSystem(OsFileSystem):
    """A disk whose changes of names fail from one of them on."""

    def __init__(self) -> None:
        super().__init__()
        self.until_failure = -1
        """How many succeed; negative: all."""

    def remove(self, path: str) -> None:
        self._count(path)
        super().remove(path)

    def rename(self, old: str, new: str) -> None:
        self._count(old)
        super().rename(old, new)

    def sync_directory(self, path: str) -> None:
        self._count(path)
        super().sync_directory(path)

    def _count(self, path: str) -> None:
        if not self.until_failure:
            raise StorageError(path, "cannot change: failure ordered")
        self.until_failure -= 1


def on_disk_of(fs: OsFileSystem, directory: Path) -> Log:
    """A log of some segments on a real file system, where a closed file cannot be synced."""
    directory.mkdir()
    log = Log.open(LogOpening(directory=str(directory), config=SMALL, fs=fs, now_ms=NOW_MS))
    append(log, range(30))
    assert fs._open_files.count == log.segment_count > 3
    return log


@pytest.mark.parametrize("start", [cut_at(3), begin_at(50)])
def test_a_flush_and_a_change_that_have_not_begun_end_with_their_log(
    start: Start, tmp_path: Path
) -> None:
    """Both wait for a thread while the log is removed; neither touches a file or keeps one open."""
    fs = FailingFileSystem()
    log = on_disk_of(fs, tmp_path / "log")
    flush = log.start_flush()
    change = start(log)
    before = sorted((tmp_path / "log").iterdir())
    log.abandon()
    assert fs._open_files.count == 0
    flush.run()
    change.run()
    log.finish_change(change)
    assert not flush.is_done
    assert sorted((tmp_path / "log").iterdir()) == before


@pytest.mark.parametrize("start", [cut_at(3), begin_at(50)])
def test_a_change_that_fails_keeps_no_file_open(start: Start, tmp_path: Path) -> None:
    """Wherever it fails; only the log's own segments stay open until the log is closed."""
    for succeeding in count():
        fs = FailingFileSystem()
        log = on_disk_of(fs, tmp_path / str(succeeding))
        change = start(log)
        fs.until_failure = succeeding
        with contextlib.suppress(StorageError):
            change.run()
        log.finish_change(change)
        assert fs._open_files.count == log.segment_count
        log.abandon()
        assert fs._open_files.count == 0
        if change.error is None:
            break
    assert succeeding > 5
