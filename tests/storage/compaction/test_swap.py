"""A swap that is cut short at any operation on disk leaves the old segments or the new one (C3)."""

from __future__ import annotations

import random

import pytest

from echoless.protocol.dedup import Duplicate
from echoless.storage.file_system import StorageError
from echoless.storage.log import Log
from echoless.storage.opening import LogOpening
from tests.fakes.memory_file_system import (
    MemoryFileSystem,
    PowerFailure,
    Survival,
    keep_all,
    keep_none,
)
from tests.storage.compaction.keyed_log import (
    CONFIG,
    append,
    batches_of,
    clean,
    compacted_view,
    keyed_batch,
    records_in,
)
from tests.storage.log_workload import facts_of_entries
from tests.storage.one_log import DIRECTORY, NOW_MS, OneLog

BATCHES = 30


def written(seed: int) -> OneLog:
    """A log of some segments, all of it flushed."""
    one, rng = OneLog(CONFIG), random.Random(seed)
    one.fs.sync_directory("/data")
    sequences = [0, 0, 0]
    for _ in range(BATCHES):
        producer_id = rng.randrange(3)
        value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(40))
        pairs = [(b"%d" % rng.randrange(6), value) for _ in range(rng.randrange(1, 4))]
        batch = keyed_batch(pairs, producer_id=producer_id, sequence=sequences[producer_id])
        append(one.log, batch)
        sequences[producer_id] += len(pairs)
    one.log.roll()
    one.log.flush()
    return one


def operations_of_a_pass(seed: int) -> range:
    one = written(seed)
    before = one.fs.operations
    assert clean(one.log)
    return range(before, one.fs.operations)


def some(seed: float) -> Survival:
    rng = random.Random(seed)
    return lambda count: rng.randrange(count + 1)


def reopened(fs: MemoryFileSystem, recovery_point: int) -> Log:
    return Log.open(
        LogOpening(
            directory=DIRECTORY, config=CONFIG, fs=fs, now_ms=NOW_MS, recovery_point=recovery_point
        )
    )


class Before:
    """Everything that was true of the log before the pass, and must be true afterwards."""

    def __init__(self, log: Log) -> None:
        self.end = log.log_end_offset
        self.view = compacted_view(records_in(log))
        self.producers = facts_of_entries(log.producers.items())
        self.records = records_in(log)

    def check(self, log: Log) -> None:
        assert log.log_end_offset == self.end
        assert compacted_view(records_in(log)) == self.view
        assert facts_of_entries(log.producers.items()) == self.producers
        left = {record.offset: record for record in records_in(log)}
        assert all(record in self.records for record in left.values())
        names = log._fs.list_directory(DIRECTORY)
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]


def check_crash(seed: int, operation: int) -> None:
    one = written(seed)
    before, point = Before(one.log), one.log.recovery_point
    one.fs.lose_power_at = operation
    with pytest.raises(PowerFailure):
        clean(one.log)
    for survive in (keep_all, keep_none, some(operation), some(operation + 0.5)):
        survivor = one.fs.after_power_loss(survive, operation)
        log = reopened(survivor, point)
        before.check(log)
        batch = keyed_batch([(b"new", b"x")])
        append(log, batch)
        clean(log, now_ms=NOW_MS + 2000)
        log.close()
        again = reopened(survivor, log.recovery_point)
        assert again.log_end_offset == before.end + 1
        assert compacted_view(records_in(again)) == before.view | {
            b"new": (before.end, b"x", NOW_MS)
        }


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_power_failure_in_a_pass_leaves_the_log_whole(seed: int) -> None:
    """Nothing is lost, nothing comes back, and the next pass works."""
    operations = operations_of_a_pass(seed)
    assert len(operations) > 20
    for operation in operations:
        check_crash(seed, operation)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3])
def test_opening_after_a_crash_may_be_cut_short_too(seed: int) -> None:
    """The second start finishes what the first one has begun."""
    for operation in operations_of_a_pass(seed)[::2]:
        one = written(seed)
        before, point = Before(one.log), one.log.recovery_point
        one.fs.lose_power_at = operation
        with pytest.raises(PowerFailure):
            clean(one.log)
        probe = one.fs.after_power_loss(some(operation), operation)
        reopened(probe, point)
        for second in range(probe.operations):
            survivor = one.fs.after_power_loss(some(operation), operation)
            survivor.lose_power_at = second
            with pytest.raises(PowerFailure):
                reopened(survivor, point)
            for survive in (keep_all, keep_none, some(second)):
                before.check(reopened(survivor.after_power_loss(survive, second), point))


@pytest.mark.slow
def test_a_failing_disk_in_a_swap_disables_the_log() -> None:
    """Once a swap was decided, memory and disk may disagree; before that nothing has happened."""
    outcomes = set()
    for operation in operations_of_a_pass(4):
        one = written(4)
        before, point = Before(one.log), one.log.recovery_point
        one.fs.fail_at = operation
        try:
            clean(one.log)
        except StorageError:
            outcomes.add(one.log.failure is not None)
            if one.log.failure is None:
                one.fs.fail_at = None
                assert clean(one.log)
                before.check(one.log)
        one.fs.fail_at = None
        before.check(reopened(one.fs, point))
    assert outcomes == {True, False}


def test_a_replacement_of_the_log_drops_what_compaction_has_left() -> None:
    """A decided swap of the old log must not come back in the new one."""
    one = written(5)
    one.fs.write_atomic(f"{DIRECTORY}/00000000000000000000.log.swap", b"x" * 100)
    snapshot = one.fs.read_bytes(f"{DIRECTORY}/{one.log.log_end_offset:020d}.snapshot")
    end = one.log.log_end_offset
    one.log.reset_to(end, snapshot, clock_ahead_ms=0, now_ms=NOW_MS)
    assert reopened(one.fs, end).log_end_offset == end


@pytest.mark.slow
def test_repeats_are_duplicates_after_any_crash() -> None:
    """The last batch of each producer is known, wherever the power failed."""
    operations = operations_of_a_pass(6)
    for operation in operations:
        one = written(6)
        point = one.log.recovery_point
        newest = {header.producer_id: (header, data) for header, data in batches_of(one.log)}
        one.fs.lose_power_at = operation
        with pytest.raises(PowerFailure):
            clean(one.log)
        log = reopened(one.fs.after_power_loss(keep_none, operation), point)
        for header, data in newest.values():
            found = log.append(data, header, 0, NOW_MS)
            assert isinstance(found, Duplicate)
            assert found.original.base_offset == header.base_offset


def test_a_segment_that_was_written_in_vain_goes_with_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is never part of the log: the next start removes it."""
    caplog.set_level("INFO")
    one = written(7)
    before = Before(one.log)
    one.fs.write_atomic(f"{DIRECTORY}/00000000000000000000.log.cleaned", b"x" * 100)
    before.check(one.close_and_open())
    assert "removed /data/orders-0/00000000000000000000.log.cleaned" in caplog.text
