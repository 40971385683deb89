"""The end of a batch: the driver's step of `partition_writer.py` and `task_identity.py`.

Only the driver knows which attempt of a task counts, and has seen all tasks. Before it reports the batch to Spark as
done,

1. it looks whether every task that was begun, in this run or an earlier one, is among those that report. One that is
   not has rows stored that this run does not have: the batch is refused;
2. if tasks were deferred, it allows them to begin in the next run, now that all others were found again;
3. it records that the batch is complete: no other task can begin any more;
4. it records the end of each task.

After a crash in between, the batch is rerun, finds all rows stored, and what is missing is recorded then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

from echoless.pipeline.exactly_once.batch_metrics import BatchMetrics, TaskCosts, total
from echoless.pipeline.exactly_once.batch_tasks import NO_METRICS, BatchTasks, SlotName, TaskSlot
from echoless.pipeline.exactly_once.entries import End, TaskOrigin
from echoless.pipeline.exactly_once.errors import ReplayMismatchError, SinkError
from echoless.pipeline.exactly_once.ledger import (
    BATCHES_KEPT,
    Ledger,
    TaskLocation,
    add_end,
    use_of_lane,
)
from echoless.pipeline.exactly_once.ledger_files import LedgerFiles
from echoless.pipeline.exactly_once.ledger_identity import open_files
from echoless.pipeline.exactly_once.options import SinkOptions
from echoless.pipeline.exactly_once.task_identity import UseOfLane, is_begun
from echoless.pipeline.exactly_once.verification import REMEDY, mismatch

_PARALLEL_WRITES: Final = 32
"""Files written at once: remote file systems are slow."""


class TaskReport(NamedTuple):
    """Report of a task that had rows."""

    location: TaskLocation
    slot: SlotName
    end: End | None
    """The end to record; None: it is recorded already."""
    is_deferred: bool
    rows: int = 0
    rows_found: int = 0
    """Number of those that an earlier attempt had stored."""
    costs: TaskCosts = TaskCosts()
    begins: int = 0
    """Number of the `begin`s that the end follows; 0: not known."""


def end_batch(
    options: SinkOptions, location: TaskLocation, reports: Sequence[TaskReport]
) -> BatchMetrics | None:
    """Ends the batch of `location`; None: tasks were deferred, and may begin when it is run again.

    Raises `SinkError`; `ReplayMismatchError` if tasks that were begun are not among the reports.
    """
    files = open_files(options)
    tasks = BatchTasks(files, location.sink, location.query_id, location.batch_id)
    counts = [(one.rows, one.rows_found, one.costs) for one in reports]
    so_far = total(location.batch_id, counts, files.requests).recorded()
    use = partial(use_of_lane, files, location)
    if not close_tasks(tasks, location.run, reports, use, so_far):
        return None
    record_ends(
        files, [(one.location, one.end, one.begins) for one in reports if one.end is not None]
    )
    tasks.clean(BATCHES_KEPT)
    metrics = total(location.batch_id, counts, files.requests)
    metrics.log(location.sink)
    return metrics


def close_tasks(
    tasks: BatchTasks,
    run: str,
    reports: Sequence[TaskReport],
    use: UseOfLane,
    metrics: Mapping[str, Any] = NO_METRICS,
) -> bool:
    """Records that the batch has no other tasks; False: some were deferred, and may begin now.

    Raises `LedgerError`; `ReplayMismatchError` if tasks that were begun are not among the reports.
    """
    _check_all_found(tasks, reports, use)
    deferred = [report.slot.digest for report in reports if report.is_deferred]
    if deferred:
        tasks.admit(run, deferred)
        return False
    recorded = tasks.complete(len(reports), metrics) if reports else 0
    if recorded != len(reports):
        raise ReplayMismatchError(
            f"{tasks.what}: {len(reports)} Spark partitions have rows now, and {recorded} had before. {DIVISION}"
        )
    return True


DIVISION: Final = (
    "The rows are others now, or they are divided otherwise: by another number of Spark partitions or cores, or by "
    "Spark's adaptive execution (spark.sql.adaptive.coalescePartitions.enabled=false keeps the division)"
)


def _check_all_found(tasks: BatchTasks, reports: Sequence[TaskReport], use: UseOfLane) -> None:
    """Raises `ReplayMismatchError` if a task that was begun is not among the reports."""
    found = {one.location.task_origin for one in reports if not one.is_deferred}
    names = {one.slot for one in reports if not one.is_deferred}
    listed = tasks.listing()
    slots = [tasks.slot(name) for name in listed.slots if name not in names]
    missing: dict[TaskOrigin, TaskSlot] = {
        slot.origin: slot
        for slot in slots
        if slot.origin not in found and is_begun(slot, listed, tasks, use)
    }
    if not missing:
        return
    numbers = ", ".join(str(origin.spark_partition) for origin in sorted(missing))
    new = ", ".join(str(one.location.spark_partition) for one in reports if one.is_deferred)
    begin = (
        f"; Spark partitions {new} begin with other rows now, which were not stored" if new else ""
    )
    raise ReplayMismatchError(
        f"{tasks.what}: this is not what an earlier attempt sent: what was Spark partition {numbers} then was not "
        f"found again{begin}. {DIVISION}. {REMEDY}{tasks.cause}"
    )


def record_ends(files: LedgerFiles, ends: Sequence[tuple[TaskLocation, End, int]]) -> None:
    """Records the ends of one batch, each after its number of `begin`s. Raises `SinkError`."""
    if len(ends) == 1:
        record_end(files, *ends[0])
        return
    with ThreadPoolExecutor(_PARALLEL_WRITES) as threads:
        list(threads.map(lambda one: record_end(files, *one), ends))


def record_end(files: LedgerFiles, location: TaskLocation, end: End, begins: int = 0) -> None:
    """Records one end. Raises `SinkError` if another attempt continued or ended with other rows."""
    if begins and add_end(files, location, end, begins):
        return
    ledger = Ledger(files, location)
    if ledger.end is None:
        identity = ledger.begins[-1].identity if ledger.begins else None
        if identity != (end.state.producer_id, end.state.producer_epoch):
            raise SinkError(f"{location}: another attempt continues under another identity")
        ledger.add(end)
    if ledger.end is None:
        raise SinkError(f"{location}: another attempt has continued")
    if (end.rows, end.targets) != (ledger.end.rows, ledger.end.targets):
        raise mismatch(location, "another attempt at the same time has ended with other rows")
    ledger.clean()
