"""A disk that fails or fills up at any operation: nothing acknowledged is lost, nothing torn stays."""

from __future__ import annotations

import pytest

from echoless.protocol.record_batch import read_header
from echoless.storage.appended import Appended
from echoless.storage.file_system import StorageError
from tests.fakes.memory_file_system import MemoryFileSystem, keep_all, keep_none
from tests.storage.log_workload import (
    KEY,
    InFlight,
    Workload,
    make_batch,
    new_file_system,
    read_all,
)
from tests.storage.test_power_loss import count_operations

_STEPS = 60


def run_until_failure(workload: Workload) -> None:
    """The broker's way: the first failure takes the directory offline."""
    with pytest.raises(StorageError):
        workload.run(_STEPS)


def check_restart(workload: Workload) -> None:
    fs = workload.fs
    assert isinstance(fs, MemoryFileSystem)
    workload.check_recovered(fs.after_power_loss(keep_all), nothing_lost=True)
    workload.check_recovered(fs.after_power_loss(keep_none), nothing_lost=False)


def check_failures(seed: int, step: int, attribute: str) -> None:
    for operation in range(seed, count_operations(seed, _STEPS), step):
        fs = new_file_system()
        setattr(fs, attribute, operation)
        workload = Workload(fs, seed)
        try:
            run_until_failure(workload)
            check_restart(workload)
        except BaseException as error:
            error.add_note(f"seed {seed}, operation {operation}")
            raise


@pytest.mark.parametrize("seed", range(2))
def test_one_failed_operation_loses_nothing(seed: int) -> None:
    """After a single failure and a restart all that was acknowledged is there."""
    check_failures(seed, 11, "fail_at")


@pytest.mark.parametrize("seed", range(2))
def test_a_disk_that_dies_loses_nothing_it_had_taken(seed: int) -> None:
    """From some operation on everything fails; a restart finds everything acknowledged."""
    check_failures(seed, 13, "fail_from")


@pytest.mark.slow
@pytest.mark.parametrize("attribute", ["fail_at", "fail_from"])
@pytest.mark.parametrize("seed", range(20, 24))
def test_any_operation_may_fail(seed: int, attribute: str) -> None:
    """The same for every operation."""
    check_failures(seed, 1, attribute)


def test_a_full_disk_takes_batches_again_once_there_is_room() -> None:
    """A failed append leaves no trace: the same batch is taken when the disk has room again."""
    fs = new_file_system()
    workload = Workload(fs, 1)
    workload.start()
    for _ in range(5):
        workload.append()
    log = workload.log
    before = read_all(log), log.log_end_offset, dict(log.producers.items())
    fs.capacity_bytes = fs.used_bytes() + 50
    batch = make_batch(producer_id=9, epoch=0, sequence=0)
    with pytest.raises(StorageError, match="no space left"):
        log.append(batch, read_header(batch), 0, workload.now_ms)
    assert (read_all(log), log.log_end_offset, dict(log.producers.items())) == before
    fs.capacity_bytes = None
    answer = log.append(batch, read_header(batch), 0, workload.now_ms)
    assert isinstance(answer, Appended)
    assert answer.base_offset == workload.end
    workload.in_flight = InFlight()


def test_a_failed_flush_is_not_forgotten() -> None:
    """After a failed sync no later flush succeeds, and the shutdown is not clean."""
    fs = new_file_system()
    workload = Workload(fs, 1)
    workload.start()
    workload.append()
    fs.fail_at = fs.operations
    for _ in range(2):
        with pytest.raises(StorageError):
            workload.log.flush()
    assert workload.log.recovery_point == 0
    with pytest.raises(StorageError):
        workload.directory.close({KEY: 0})
    assert not fs.exists("/data/.clean-shutdown")
