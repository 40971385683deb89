"""A flush runs in another thread while the owner appends, rolls, and cuts."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from echoless.storage import log
from echoless.storage.file_system import StorageError
from echoless.storage.log import Log
from echoless.storage.opening import LogOpening
from echoless.storage.os_file_system import OsFileSystem
from echoless.storage.pending_flush import PendingFlush
from echoless.storage.producers.snapshot import read_snapshot
from tests.fakes.memory_file_system import MemoryFileSystem, keep_none
from tests.storage.log_workload import read_all
from tests.storage.one_log import DIRECTORY, NOW_MS, SMALL, OneLog


def power_cut(one: OneLog) -> Log:
    fs = one.fs
    assert isinstance(fs, MemoryFileSystem)
    survivor = fs.after_power_loss(keep_none)
    return Log.open(
        LogOpening(
            directory=DIRECTORY,
            config=SMALL,
            fs=survivor,
            now_ms=NOW_MS,
            recovery_point=one.log.recovery_point,
        )
    )


def test_a_roll_encodes_no_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million of them take a second; the flush encodes them as they were when it rolled."""
    one = OneLog()
    one.fill(3)
    encoded: list[int] = []
    encode = log.encode_snapshot

    def noting(offset: int, producers: object) -> bytes:
        encoded.append(offset)
        return encode(offset, producers)  # type: ignore[arg-type]

    monkeypatch.setattr(log, "encode_snapshot", noting)
    one.log.roll()
    one.fill(3, first_sequence=3)
    assert encoded == []
    one.log.flush()
    assert encoded == [3]
    snapshot = read_snapshot(one.fs, f"{DIRECTORY}/{3:020d}.snapshot")
    assert [entry.last_sequence for _, entry in snapshot.items()] == [2]


def test_what_a_flush_covers_survives_a_power_failure() -> None:
    """Batches, indexes, the producer snapshots of rolls, and the files' names."""
    one = OneLog()
    one.fs.sync_directory("/data")
    one.fill(30)
    expected = read_all(one.log)
    pending = one.log.start_flush()
    one.fill(20, first_sequence=30)
    pending.run()
    one.log.finish_flush(pending)
    log = power_cut(one)
    assert log.log_end_offset >= 30
    assert read_all(log).startswith(expected)
    assert one.files(".snapshot")


def test_the_owner_appends_and_rolls_while_a_flush_runs(tmp_path: Path) -> None:
    """Neither thread waits for the other, and both leave a log that opens cleanly."""
    directory = str(tmp_path)
    new = LogOpening(directory=directory, config=SMALL, fs=OsFileSystem(), now_ms=NOW_MS)
    log = Log.open(new)
    one = OneLog()
    one.log = log
    for first in range(0, 200, 40):
        pending = log.start_flush()
        thread = threading.Thread(target=pending.run)
        thread.start()
        one.fill(40, first_sequence=first)
        thread.join()
        log.finish_flush(pending)
        assert log.recovery_point == first
    expected = read_all(log)
    log.close()
    again = Log.open(replace(new, recovery_point=200, clean=True))
    assert read_all(again) == expected
    assert again.recovery.batches_replayed == 0
    again.abandon()


def test_a_cancelled_flush_does_nothing() -> None:
    """Once `cancel` returned, `run` touches no file."""
    one = OneLog()
    one.fill(20)
    pending = one.log.start_flush()
    pending.cancel()
    fs = one.fs
    assert isinstance(fs, MemoryFileSystem)
    operations = fs.operations
    pending.run()
    assert fs.operations == operations
    assert not pending.is_done


def test_a_failed_flush_moves_nothing_and_may_be_finished() -> None:
    """The recovery point stays where it was; what is left to write is not forgotten."""
    one = OneLog()
    one.fill(20)
    fs = one.fs
    assert isinstance(fs, MemoryFileSystem)
    pending = one.log.start_flush()
    fs.fail_at = fs.operations + len(pending.segments)  # the first index file
    with pytest.raises(StorageError):
        pending.run()
    one.log.finish_flush(pending)
    assert one.log.recovery_point == 0
    again: PendingFlush = one.log.start_flush()
    assert len(again.unsaved) == len(pending.unsaved) > 0
    assert again.snapshots == pending.snapshots
    again.run()
    one.log.finish_flush(again)
    assert one.log.recovery_point == 20


def test_a_log_is_abandoned_while_its_owner_is_told_of_the_flush(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A removal waits in its thread for the flush, and the owner publishes it just then."""
    one = OneLog()
    one.fill(10)
    pending = one.log.start_flush()
    pending.run()
    cancel = PendingFlush.cancel

    def cancelled_while_the_owner_publishes(flush: PendingFlush) -> None:
        cancel(flush)
        one.log.finish_flush(flush)

    monkeypatch.setattr(PendingFlush, "cancel", cancelled_while_the_owner_publishes)
    one.log.abandon()
    assert one.log.recovery_point == 10
