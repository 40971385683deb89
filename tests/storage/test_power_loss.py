"""Recovery after the power failed, or the process died, at every single operation on disk."""

from __future__ import annotations

import random

import pytest

from echoless.protocol.record_batch import read_header
from echoless.storage.log_directory import LogDirectory
from tests.fakes.memory_file_system import (
    MemoryFileSystem,
    PowerFailure,
    Survival,
    keep_all,
    keep_none,
)
from tests.storage.log_workload import KEY, Workload, make_batch, new_file_system, open_directory

STEPS = 60


def count_operations(seed: int, steps: int = STEPS) -> int:
    fs = new_file_system()
    Workload(fs, seed).run(steps)
    return fs.operations


def run_until_power_failure(seed: int, operation: int, steps: int = STEPS) -> Workload:
    fs = new_file_system()
    fs.lose_power_at = operation
    workload = Workload(fs, seed)
    with pytest.raises(PowerFailure):
        workload.run(steps)
    return workload


def some(seed: float) -> Survival:
    """Any prefix of the unsynced operations of each file and directory survives."""
    rng = random.Random(seed)
    return lambda count: rng.randrange(count + 1)


def check_every_survival(workload: Workload, operation: int) -> None:
    fs = workload.fs
    assert isinstance(fs, MemoryFileSystem)
    workload.check_recovered(fs.after_power_loss(keep_all), nothing_lost=True)
    for survive in (keep_none, some(operation), some(operation + 1)):
        survivor = fs.after_power_loss(survive, operation)
        directory = workload.check_recovered(survivor, nothing_lost=False)
        check_it_goes_on(survivor, directory, workload.now_ms)


def check_it_goes_on(fs: MemoryFileSystem, directory: LogDirectory, now_ms: int) -> None:
    """Checks that the recovered log takes a batch, closes cleanly and opens with all of it."""
    if KEY not in directory.logs:
        return
    log = directory.logs[KEY]
    batch = make_batch()
    epoch = max(log.leader_epochs.latest_epoch, 0)
    log.append(batch, read_header(batch), epoch, now_ms)
    end, producers = log.log_end_offset, dict(log.producers.items())
    directory.close({KEY: end})
    again = open_directory(fs, now_ms).logs[KEY]
    assert again.log_end_offset == end
    assert again.recovery.batches_scanned == again.recovery.batches_replayed == 0
    assert dict(again.producers.items()) == producers


def check_crashes(seed: int, operations: range, steps: int = STEPS) -> None:
    for operation in operations:
        try:
            check_every_survival(run_until_power_failure(seed, operation, steps), operation)
        except BaseException as error:
            error.add_note(f"seed {seed}, operation {operation}")
            raise


@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_any_operation_loses_nothing_that_was_safe(seed: int) -> None:
    """Flushed bytes are there, the tail is a clean prefix, producers match it."""
    check_crashes(seed, range(seed, count_operations(seed), 17))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [12, 13, 14])
def test_a_crash_at_every_operation_loses_nothing_that_was_safe(seed: int) -> None:
    """The same at every operation of longer workloads."""
    check_crashes(seed, range(count_operations(seed, 120)), 120)


def check_crash_in_recovery(seed: int, operation: int) -> None:
    workload = run_until_power_failure(seed, operation)
    fs = workload.fs
    assert isinstance(fs, MemoryFileSystem)
    probe = fs.after_power_loss(some(operation), operation)
    workload.check_recovered(probe, nothing_lost=False)
    for second in range(probe.operations):
        again = fs.after_power_loss(some(operation), operation)
        again.lose_power_at = second
        with pytest.raises(PowerFailure):
            open_directory(again, workload.now_ms)
        for survive in (keep_none, keep_all, some(second)):
            workload.check_recovered(again.after_power_loss(survive, second), nothing_lost=False)


@pytest.mark.parametrize("operation", range(40, 160, 29))
def test_recovery_itself_may_be_cut_short(operation: int) -> None:
    """A second power failure at any operation of the recovery finds the same batches."""
    check_crash_in_recovery(5, operation)


def step_for_ever(workload: Workload) -> None:
    while True:
        workload.step()


def check_life_of_crashes(seed: int, crashes: int) -> None:
    """Runs one broker that crashes repeatedly at random operations, and continues each time."""
    rng = random.Random(seed)
    workload = Workload(new_file_system(), seed)
    workload.start()
    for number in range(crashes):
        fs = workload.fs
        assert isinstance(fs, MemoryFileSystem)
        fs.lose_power_at = fs.operations + rng.randrange(1, 150)
        with pytest.raises(PowerFailure):
            step_for_ever(workload)
        survive = rng.choice([keep_all, keep_none, some(rng.random())])
        survivor = fs.after_power_loss(survive, number)
        directory = workload.check_recovered(survivor, nothing_lost=survive is keep_all)
        workload.go_on(survivor, directory)
    workload.reopen()


@pytest.mark.parametrize("seed", range(6))
def test_a_broker_that_crashes_again_and_again_keeps_its_promises(seed: int) -> None:
    """The state left by one recovery does not mislead the next."""
    check_life_of_crashes(seed, 10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_long_lives_of_crashes(seed: int) -> None:
    """The same for longer."""
    check_life_of_crashes(seed, 40)
