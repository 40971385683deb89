"""Files in which the tasks of one batch are known by what they hold, whatever their numbers are.

Spark may number the tasks of a batch otherwise when it runs again. A *run* is one execution of a batch's tasks, in
which numbers are fixed; the run and number of the task that a lane of the ledger was first used for are its *origin*.

    tasks-07/batch-00000000000000000023.first.json                        the run that began the batch
    tasks-07/batch-00000000000000000023.slot.<digest>.<occurrence>.json   a task with these first rows: origin, lane, first run
    tasks-07/batch-00000000000000000023.claim.<run>.<origin>.json         the number that has it in a later run
    tasks-07/batch-00000000000000000023.bound.<run>.<number>.json         the origin and lane of a later run's task
    tasks-07/batch-00000000000000000023.waits.<run>.json                  a task of this run has waited in vain
    tasks-07/batch-00000000000000000023.admitted.<run>.json               digests that may begin in the next run
    tasks-07/batch-00000000000000000023.complete.json                     the number of tasks with rows

Tasks with equal rows have occurrences 0, 1, 2, ... A batch's files are in the directory of its number modulo 16,
so that no empty directories are left behind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from echoless.pipeline.exactly_once.batch_metrics import BatchMetrics, recorded_metrics
from echoless.pipeline.exactly_once.entries import TaskOrigin
from echoless.pipeline.exactly_once.errors import NEW_CHECKPOINT, LedgerError
from echoless.pipeline.exactly_once.ledger_files import LedgerFiles
from echoless.pipeline.exactly_once.verification import OTHER_JOB

VERSION: Final = 1
NO_METRICS: Final[Mapping[str, Any]] = {}
_DIRECTORIES: Final = 16
_COMPLETE: Final = "complete"
_NAME: Final = re.compile(r"batch-(\d{20})\.(.+)\.json")


class SlotName(NamedTuple):
    """Name of a slot: what its task holds."""

    digest: str
    """Digest of the task's first rows (`task_head.py`)."""
    occurrence: int
    """Index among the tasks with these first rows."""


class TaskSlot(NamedTuple):
    """Record of a task that has begun, or was about to."""

    name: SlotName
    origin: TaskOrigin
    lane: int
    first_run: str
    """The run in which the batch was first begun."""


class BatchTasks:
    """Files of one batch's tasks. All methods raise `LedgerError`."""

    def __init__(self, files: LedgerFiles, sink: str, query_id: str, batch_id: int) -> None:
        self._files = files
        self._sink = sink
        self._query_id = query_id
        self._batch_id = batch_id
        self.what = f"sink {sink}, batch {batch_id}"
        self.cause = "" if query_id else f". {OTHER_JOB}"
        """Another cause of rows that differ in a job."""

    def listing(self) -> TaskFiles:
        """Lists the batch's files."""
        found = (
            _NAME.fullmatch(name) for name in self._files.list(self._directory(self._batch_id))
        )
        return TaskFiles(
            frozenset(one[2] for one in found if one is not None and int(one[1]) == self._batch_id)
        )

    def first_run(self) -> str | None:
        """Returns the run that began the batch; None: none has, or an older version."""
        fields = self._find("first")
        return None if fields is None else str(fields["run"])

    def begin(self, run: str) -> str:
        """Records that this run begins the batch; returns the one that was recorded first."""
        return run if self._create("first", {"run": run}) else str(self._read("first")["run"])

    def add_slot(self, slot: TaskSlot) -> TaskSlot:
        """Creates the slot; returns it, or the one that has the name already."""
        return slot if self.create_slot(slot) else self.slot(slot.name)

    def create_slot(self, slot: TaskSlot) -> bool:
        """Creates the slot, unless there is one of its name; returns whether it did."""
        fields = {
            **slot.origin._asdict(),
            "lane": slot.lane,
            "first_run": slot.first_run,
            "query_id": self._query_id,
        }
        return self._create(_slot(slot.name), fields)

    def slot(self, name: SlotName) -> TaskSlot:
        """Reads a slot."""
        fields = self._read(_slot(name))
        if fields["query_id"] != self._query_id:
            raise LedgerError(
                f"{self.what}: the ledger belongs to query {fields['query_id'] or '(none)'}, this is "
                f"{self._query_id or '(none)'}. {NEW_CHECKPOINT}"
            )
        return TaskSlot(name, _origin(fields), fields["lane"], fields["first_run"])

    def claim(self, run: str, origin: TaskOrigin, number: int) -> int:
        """Claims the lane of an origin for a task of a later run; returns the number of the task that has it."""
        name = f"claim.{run}.{_origin_text(origin)}"
        if self._create(name, {"spark_partition": number}):
            return number
        return int(self._read(name)["spark_partition"])

    def bind(self, run: str, number: int, slot: TaskSlot) -> TaskSlot:
        """Binds a task of a later run to a slot; returns it, or the one that another attempt has chosen."""
        fields = {**slot.name._asdict(), **slot.origin._asdict(), "lane": slot.lane}
        fields["first_run"] = slot.first_run
        if self._create(f"bound.{run}.{number}", fields):
            return slot
        return self.bound(run, number)

    def bound(self, run: str, number: int) -> TaskSlot:
        """Reads the slot that a task of a later run is bound to."""
        fields = self._read(f"bound.{run}.{number}")
        name = SlotName(fields["digest"], fields["occurrence"])
        return TaskSlot(name, _origin(fields), fields["lane"], fields["first_run"])

    def wait(self, run: str) -> None:
        """Records that a task of this run has waited in vain."""
        self._create(f"waits.{run}", {})

    def admit(self, run: str, digests: list[str]) -> None:
        """Allows tasks with these first rows to begin in a later run."""
        self._create(f"admitted.{run}", {"digests": digests})

    def admitted(self, run: str) -> list[str]:
        """Returns the digests that the run has had admitted."""
        return list(self._read(f"admitted.{run}")["digests"])

    def complete(self, tasks: int, metrics: Mapping[str, Any] = NO_METRICS) -> int:
        """Records that the batch has this many tasks with rows; returns the number recorded first."""
        if self._create(_COMPLETE, {"tasks": tasks, **metrics}):
            return tasks
        return int(self._read(_COMPLETE)["tasks"])

    def completed(self) -> int | None:
        """Returns the number of tasks of a complete batch; None: it is not complete."""
        fields = self._find(_COMPLETE)
        return None if fields is None else int(fields["tasks"])

    def clean(self, batches_kept: int) -> None:
        """Deletes the files of a batch that is so old, and of those before it in its directory."""
        last = self._batch_id - batches_kept
        if last < 0:
            return
        directory = self._directory(last)
        for name in self._files.list(directory):
            found = _NAME.fullmatch(name)
            if found is not None and int(found[1]) <= last:
                self._files.delete(f"{directory}/{name}")

    def _directory(self, batch_id: int) -> str:
        return f"{self._sink}/{_directory(batch_id)}"

    def _path(self, name: str) -> str:
        return f"{self._directory(self._batch_id)}/batch-{self._batch_id:020}.{name}.json"

    def _create(self, name: str, fields: dict[str, Any]) -> bool:
        data = json.dumps({"version": VERSION, **fields}).encode()
        return self._files.create(self._path(name), data)

    def _read(self, name: str) -> dict[str, Any]:
        path = self._path(name)
        return _fields(path, self._files.read(path))

    def _find(self, name: str) -> dict[str, Any] | None:
        path = self._path(name)
        data = self._files.find(path)
        return None if data is None else _fields(path, data)


def _fields(path: str, data: bytes) -> dict[str, Any]:
    """Reads a file of this version. Raises `LedgerError`."""
    try:
        fields: dict[str, Any] = json.loads(data)
        if fields["version"] != VERSION:
            raise LedgerError(f"{path}: version {fields['version']}, not {VERSION}")
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"{path}: not a record of a task: {error!r}") from error
    return fields


def recorded_batches(files: LedgerFiles, sink: str) -> Iterator[BatchMetrics]:
    """Yields the metrics of a sink's complete batches. Raises `LedgerError`."""
    for number in range(_DIRECTORIES):
        directory = f"{sink}/{_directory(number)}"
        for name in files.list(directory):
            found = _NAME.fullmatch(name)
            if found is None or found[2] != _COMPLETE:
                continue
            path = f"{directory}/{name}"
            metrics = recorded_metrics(int(found[1]), _fields(path, files.read(path)))
            if metrics is not None:
                yield metrics


def _directory(batch_id: int) -> str:
    return f"tasks-{batch_id % _DIRECTORIES:02}"


class TaskFiles(NamedTuple):
    """Names of a batch's files, as they were listed."""

    names: frozenset[str]

    @property
    def slots(self) -> list[SlotName]:
        found = (name.split(".") for name in self.names if name.startswith("slot."))
        return sorted(SlotName(digest, int(occurrence)) for _, digest, occurrence in found)

    @property
    def is_complete(self) -> bool:
        return _COMPLETE in self.names

    @property
    def runs_with_admitted(self) -> list[str]:
        return [name.split(".")[1] for name in self.names if name.startswith("admitted.")]

    def is_claimed(self, run: str, origin: TaskOrigin) -> bool:
        return f"claim.{run}.{_origin_text(origin)}" in self.names

    def is_bound(self, run: str, number: int) -> bool:
        return f"bound.{run}.{number}" in self.names

    def has_waited(self, run: str) -> bool:
        return f"waits.{run}" in self.names


def _slot(name: SlotName) -> str:
    return f"slot.{name.digest}.{name.occurrence}"


def _origin(fields: dict[str, Any]) -> TaskOrigin:
    return TaskOrigin(fields["run"], fields["spark_partition"])


def _origin_text(origin: TaskOrigin) -> str:
    return f"{origin.run}-{origin.spark_partition}"
