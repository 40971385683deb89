"""A model of a sink whose tasks have rows, lanes and deaths, and no brokers: for the identity of tasks alone.

What a lane has stored is a list of rows. A task finds its lane by `TaskIdentity`, compares what is stored there, and
adds the rest, as `partition_writer.py` does. It may die before any request to the ledger, and after any row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from echoless.pipeline.exactly_once import ends
from echoless.pipeline.exactly_once.batch_tasks import BatchTasks, SlotName, TaskSlot
from echoless.pipeline.exactly_once.entries import TaskOrigin
from echoless.pipeline.exactly_once.errors import ReplayMismatchError
from echoless.pipeline.exactly_once.ledger import LaneUse, TaskLocation
from echoless.pipeline.exactly_once.task_identity import TaskIdentity, TaskKey

Rows = tuple[str, ...]
HEAD = 2
"""Rows of the model's digest."""


class DiedError(Exception):
    """The process is gone."""


class MemoryFiles:
    """A ledger's files in memory; dies when its budget of requests is used up."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.budget: int | None = None

    def spend(self) -> None:
        if self.budget is not None:
            if not self.budget:
                raise DiedError
            self.budget -= 1

    def list(self, directory: str) -> list[str]:
        self.spend()
        start = f"{directory}/"
        return sorted(name[len(start) :] for name in self.files if name.startswith(start))

    def read(self, name: str) -> bytes:
        self.spend()
        return self.files[name]

    def find(self, name: str) -> bytes | None:
        self.spend()
        return self.files.get(name)

    def create(self, name: str, data: bytes) -> bool:
        self.spend()
        return self.files.setdefault(name, data) is data

    def delete(self, name: str) -> None:
        self.files.pop(name, None)


@dataclass
class Model:
    """One batch of a sink."""

    find: Callable[[Model, TaskKey], TaskSlot | None] | None = None
    """Another way to find a task's lane, to show what it gets wrong; None: the sink's."""
    files: MemoryFiles = field(default_factory=MemoryFiles)
    stored: dict[int, list[str]] = field(default_factory=dict)
    origins: dict[int, TaskOrigin] = field(default_factory=dict)
    runs: int = 0

    def attempt(self, run: str, number: int, rows: Rows, deaths: int | None = None) -> Any:
        """Runs one attempt of a task, which dies after so many requests and rows; returns its report."""
        if not rows:
            return None
        task = TaskKey(run, number, digest_of(rows))
        self.files.budget = deaths
        try:
            slot = self.find(self, task) if self.find else self.identity(task).find()
            where = location(run)._replace(spark_partition=number)
            if slot is None:
                return ends.TaskReport(where, SlotName(task.digest, 0), None, is_deferred=True)
            self._store(slot, rows)
            where = where._replace(lane=slot.lane, origin=slot.origin)
            return ends.TaskReport(where, slot.name, None, is_deferred=False)
        finally:
            self.files.budget = None

    def run(self, tasks: Sequence[Rows]) -> None:
        """Runs the whole batch undisturbed, as often as the driver does. Raises `SinkError`."""
        for _ in range(2):
            run = self.new_run()
            reports = [self.attempt(run, number, rows) for number, rows in enumerate(tasks)]
            if self.end(run, [one for one in reports if one is not None]):
                return
        raise AssertionError("deferred twice")

    def end(self, run: str, reports: list[Any]) -> bool:
        return ends.close_tasks(self.tasks(), run, reports, self.use)

    def new_run(self) -> str:
        self.runs += 1
        return f"run{self.runs}"

    def identity(self, task: TaskKey) -> TaskIdentity:
        return TaskIdentity(self.tasks(), task, self.use, defer_after_s=0)

    def tasks(self) -> BatchTasks:
        return BatchTasks(self.files, "sink", "query", 0)

    def use(self, lane: int) -> LaneUse:
        return LaneUse(has_begun=lane in self.origins, origin=self.origins.get(lane))

    def _store(self, slot: TaskSlot, rows: Rows) -> None:
        self.files.spend()
        if self.origins.setdefault(slot.lane, slot.origin) != slot.origin:
            raise AssertionError(f"lane {slot.lane} has two tasks")
        lane = self.stored.setdefault(slot.lane, [])
        if tuple(lane) != rows[: len(lane)]:
            raise ReplayMismatchError("rows differ from those stored")
        for row in rows[len(lane) :]:
            self.files.spend()
            lane.append(row)


def location(run: str) -> TaskLocation:
    return TaskLocation("sink", "query", 0, 0, run)


def digest_of(rows: Rows) -> str:
    return blake2b(repr(rows[:HEAD]).encode(), digest_size=4).hexdigest()
