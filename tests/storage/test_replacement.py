"""A log that starts over with its leader's producers.

At every crash point it is the old or the new.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from echoless.protocol.dedup import BatchMetadata, Duplicate, ProducerEntry
from echoless.protocol.record_batch import read_header
from echoless.storage.file_system import CorruptLogError, StorageError
from echoless.storage.log import Log
from echoless.storage.log_directory import LogDirectory
from echoless.storage.opening import LogOpening
from echoless.storage.os_file_system import OsFileSystem
from echoless.storage.producers.snapshot import SnapshotError, encode_snapshot
from echoless.storage.producers.state import ProducerStates
from tests.fakes.memory_file_system import (
    MemoryFileSystem,
    PowerFailure,
    Survival,
    keep_all,
    keep_none,
)
from tests.storage.log_workload import Facts, facts_of_entries, make_batch, new_file_system, stamped
from tests.storage.one_log import DIRECTORY, NOW_MS, SMALL, OneLog

pytestmark = pytest.mark.slow

KEY = ("orders", 0)
ENTRY = ProducerEntry(2, 0, NOW_MS - 500, (BatchMetadata(9, 49, 9, 1000, 77),))
KNOWN = {7: ENTRY, 8: replace(ENTRY, last_append_ms=NOW_MS - 100)}
OFFSETS = (0, 3, 12, 16, 20, 50)
"""Below the first segment of the log of `prepared`, inside it, at its end, and after it."""


def snapshot_at(offset: int, known: dict[int, ProducerEntry] = KNOWN) -> bytes:
    """The snapshot that a leader sends."""
    states = ProducerStates(SMALL.window)
    for producer_id, entry in known.items():
        states.put(producer_id, entry)
    return encode_snapshot(offset, states)


def start_anew(log: Log, offset: int, *, clock_ahead_ms: int = 0) -> None:
    log.reset_to(offset, snapshot_at(offset), clock_ahead_ms=clock_ahead_ms, now_ms=NOW_MS)


def facts_of(log: Log) -> Facts:
    return facts_of_entries(log.producers.items())


def open_directory(fs: MemoryFileSystem) -> LogDirectory:
    return LogDirectory.open("/data", broker_id=1, fs=fs, now_ms=NOW_MS, config_for=lambda _: SMALL)


def prepared(fs: MemoryFileSystem) -> LogDirectory:
    """A log of offsets 0 to 19: some segments deleted, some records, and a tail not flushed."""
    directory = open_directory(fs)
    log = directory.create(*KEY, uuid.UUID(int=7), SMALL, now_ms=NOW_MS)
    append(log, range(15))
    log.flush()
    log.advance_log_start(11)
    directory.checkpoint({KEY: 15})
    log.delete_old_segments(NOW_MS)
    append(log, range(15, 20))
    assert 3 < log.first_offset < 11
    return directory


def append(log: Log, sequences: range) -> None:
    for sequence in sequences:
        batch = make_batch(producer_id=1, epoch=0, sequence=sequence, timestamp=NOW_MS)
        log.append(batch, read_header(batch), sequence // 4, NOW_MS)


@pytest.mark.parametrize("offset", OFFSETS)
def test_a_log_begins_anew_wherever_it_is_told(offset: int) -> None:
    """Nothing of the old log is left, and the leader's producers are known, also after restarts."""
    fs = new_file_system()
    directory = prepared(fs)
    log = directory.logs[KEY]
    start_anew(log, offset)
    check_new(log, offset)
    assert log.recovery_point == offset
    directory.close({KEY: offset})
    directory = open_directory(fs)
    check_new(directory.logs[KEY], offset)
    check_new(open_directory(fs.after_power_loss(keep_none)).logs[KEY], offset)


def check_new(log: Log, offset: int) -> None:
    assert log.first_offset == log.log_start_offset == log.log_end_offset == offset
    assert log.recovery_point <= offset
    assert dict(log.producers.items()) == KNOWN
    assert log.leader_epochs.entries == ()
    files = [name for name in log._fs.list_directory(DIRECTORY) if name != "partition.metadata"]
    digits = f"{offset:020d}"
    assert {f"{digits}.log", f"{digits}.snapshot"} <= set(files)
    assert {name for name in files if name[:20] != digits} <= {"leader-epoch-checkpoint"}


def test_the_new_log_goes_on() -> None:
    """Batches are accepted after the new beginning, and a repeat of a deleted one is found."""
    one = OneLog()
    one.fill(10)
    start_anew(one.log, 50)
    repeat = make_batch(producer_id=7, epoch=2, sequence=0, count=10)
    assert isinstance(one.log.append(repeat, read_header(repeat), 3, NOW_MS), Duplicate)
    batch = stamped(make_batch(producer_id=7, epoch=2, sequence=10), 50, 3)
    assert one.log.append_replicated(batch.data, NOW_MS) == (50, 0)
    assert one.log.leader_epochs.entries == ((3, 50),)
    before = facts_of(one.log)
    for reopen in (one.open, one.close_and_open):
        log = reopen()
        assert (log.log_start_offset, log.log_end_offset) == (50, 51)
        assert facts_of(log) == before


def test_a_damaged_snapshot_changes_nothing() -> None:
    """Bytes are checked before the first step: the old log is as it was, on disk and in memory."""
    one = OneLog()
    one.fill(10)
    before = facts_of(one.log), one.log.size_bytes, one.fs.operations  # type: ignore[attr-defined]
    good = snapshot_at(50)
    damaged = bytearray(good)
    damaged[40] ^= 1
    for offset, bad in ((50, bytes(damaged)), (50, good[:-1]), (50, b""), (51, good)):
        with pytest.raises(SnapshotError):
            one.log.reset_to(offset, bad, clock_ahead_ms=5, now_ms=NOW_MS)
    assert before == (facts_of(one.log), one.log.size_bytes, one.fs.operations)  # type: ignore[attr-defined]
    one.fill(1, first_sequence=10)


@pytest.mark.parametrize("clock_ahead_ms", [-60_000, 0, 60_000])
def test_no_producer_expires_earlier_than_on_the_leader(clock_ahead_ms: int) -> None:
    """The times of the last appends are moved to this broker's clock, also for later restarts."""
    one = OneLog(replace(SMALL, producer_id_expiration_ms=1000))
    start_anew(one.log, 50, clock_ahead_ms=clock_ahead_ms)
    for reopen in (lambda: one.log, one.open, one.close_and_open):
        log = reopen()
        entries = dict(log.producers.items())
        assert entries[7].last_append_ms == NOW_MS - 500 + clock_ahead_ms
        assert entries[8].last_append_ms == NOW_MS - 100 + clock_ahead_ms
    assert one.log.expire_producers(NOW_MS + 499 + clock_ahead_ms) == 0
    assert one.log.expire_producers(NOW_MS + 500 + clock_ahead_ms) == 1


def test_a_pending_flush_of_the_old_log_does_not_touch_the_new_one() -> None:
    """Its snapshots and its recovery point belong to records that are gone."""
    one = OneLog()
    one.fill(20)
    pending = one.log.start_flush()
    start_anew(one.log, 50)
    pending.run()
    one.log.finish_flush(pending)
    assert one.log.recovery_point == 50
    assert one.files(".snapshot") == [f"{50:020d}.snapshot"]
    one.log.flush()
    assert one.files(".snapshot") == [f"{50:020d}.snapshot"]


def some(seed: int) -> Survival:
    rng = random.Random(seed)
    return lambda count: rng.randrange(count + 1)


def survivors(fs: MemoryFileSystem, seed: int) -> list[MemoryFileSystem]:
    """The possible remains of it after the process or the power failed."""
    return [fs.after_power_loss(s, seed) for s in (keep_all, keep_none, some(seed), some(-seed))]


def operations_of(offset: int) -> int:
    fs = new_file_system()
    log = prepared(fs).logs[KEY]
    before = fs.operations
    start_anew(log, offset)
    return fs.operations - before


def check_old_or_new(fs: MemoryFileSystem, offset: int, old: dict[int, Facts]) -> bool:
    """Opens what survived; returns whether it is the new log. `old`: facts of it by log end."""
    log = open_directory(fs).logs[KEY]
    is_new = log.first_offset == log.log_end_offset == offset
    if is_new:
        check_new(log, offset)
        chunk = log.producer_snapshot_chunk(None, 0, 1 << 20)
        assert (chunk.offset, chunk.data) == (offset, snapshot_at(offset))
    else:
        assert log.log_end_offset >= 15  # what was flushed is there
        assert facts_of(log) == old[log.log_end_offset]
        assert log.leader_epochs.entries[-1].epoch == (log.log_end_offset - 1) // 4
        assert log.first_offset <= log.log_start_offset <= 11
    return is_new


def facts_by_end() -> dict[int, Facts]:
    """The old log's producer state at each of its possible ends."""
    one = OneLog()
    facts = {}
    for sequence in range(20):
        one.fill(1, first_sequence=sequence)
        facts[sequence + 1] = facts_of(one.log)
    return facts


def crashed(offset: int) -> Iterator[tuple[int, MemoryFileSystem]]:
    """The power failing at each operation, with the operation's number."""
    for operation in range(operations_of(offset)):
        fs = new_file_system()
        log = prepared(fs).logs[KEY]
        fs.lose_power_at = fs.operations + operation
        with pytest.raises(PowerFailure):
            start_anew(log, offset)
        yield operation, fs


@pytest.mark.parametrize("offset", OFFSETS)
def test_a_crash_leaves_the_old_log_or_the_new_one(offset: int) -> None:
    """At no operation is there an empty log at the offset without its producers."""
    old = facts_by_end()
    found = {
        check_old_or_new(survivor, offset, old)
        for operation, fs in crashed(offset)
        for survivor in survivors(fs, operation)
    }
    assert found == {False, True}


def check_crashes_in_recovery(offset: int, step: int) -> None:
    old = facts_by_end()
    for operation, fs in crashed(offset):
        for survivor in survivors(fs, operation)[operation % step :: step]:
            probe = survivor.after_power_loss(keep_all)
            open_directory(probe)
            for second in range(operation % step, probe.operations, step):
                once = survivor.after_power_loss(keep_all)
                once.lose_power_at = second
                with pytest.raises(PowerFailure):
                    open_directory(once)
                for again in survivors(once, second):
                    check_old_or_new(again, offset, old)


@pytest.mark.parametrize("offset", [3, 16])
def test_the_completion_may_be_cut_short_as_well(offset: int) -> None:
    """A second crash, while the next start carries out the rest, changes nothing."""
    check_crashes_in_recovery(offset, 4)


@pytest.mark.parametrize("offset", OFFSETS)
def test_the_completion_may_be_cut_short_anywhere(offset: int) -> None:
    """The same at every operation."""
    check_crashes_in_recovery(offset, 1)


@pytest.mark.parametrize("attribute", ["fail_at", "fail_from"])
@pytest.mark.parametrize("offset", OFFSETS)
def test_a_failing_disk_leaves_the_old_log_or_the_new_one(attribute: str, offset: int) -> None:
    """A log that could not finish takes no more batches; the next start finds one or the other."""
    old = facts_by_end()
    for operation in range(operations_of(offset)):
        fs = new_file_system()
        directory = prepared(fs)
        log = directory.logs[KEY]
        setattr(fs, attribute, fs.operations + operation)
        with pytest.raises(StorageError):
            start_anew(log, offset)
        with pytest.raises(StorageError):
            append(log, range(20, 21))
        with pytest.raises(StorageError):
            log.truncate_to(18)
        directory.fail(StorageError("/data", "failed"))
        directory.close({KEY: 15})
        for survivor in survivors(fs, operation):
            check_old_or_new(survivor, offset, old)


def test_the_real_file_system_replaces_a_log_as_well(tmp_path: Path) -> None:
    """One that begins at the same offset, too, whose open files are removed and recreated."""
    directory = str(tmp_path)
    for offset in (0, 5, 5, 3):
        found = LogOpening(directory=directory, config=SMALL, fs=OsFileSystem(), now_ms=NOW_MS)
        log = Log.open(found)
        append(log, range(log.log_end_offset, log.log_end_offset + 10))
        log.producers.clear()
        start_anew(log, offset)
        assert dict(log.producers.items()) == KNOWN
        assert sorted(path.suffix for path in tmp_path.iterdir()) == [".log", ".snapshot"]
        log.close()
        for clean in (True, False):
            log = Log.open(replace(found, clean=clean))
            assert (log.first_offset, log.log_end_offset) == (offset, offset)
            assert dict(log.producers.items()) == KNOWN
            log.abandon()


def test_a_decided_replacement_that_is_damaged_is_refused() -> None:
    """Segments of the old log may be gone: it must not pass for whole, nor be empty silently."""
    one = OneLog()
    one.fill(10)
    one.fs.write_atomic(f"{DIRECTORY}/replacement.snapshot", snapshot_at(50)[:-1])
    with pytest.raises(CorruptLogError, match=r"replacement\.snapshot"):
        one.open()
