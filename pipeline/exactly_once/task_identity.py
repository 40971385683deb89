"""Finds the lane of the ledger that a task's rows belong to, by what the task holds.

Within one run of a batch a task is known by its number: its retries and twins use the lane of that number. A later
run may have other numbers (Spark's Kafka source numbers its tasks by the order of a map, which is another one after a
restart), so there a task is known by the digest of its first rows:

1. A slot with the digest, of an earlier run: the task claims its origin, which no other task of this run can have
   then, and is bound to its lane. Of tasks with equal first rows each finds another one, the one of its own number first.
2. No such slot: the rows are new. That is possible if the earlier run died before this task had begun. Otherwise
   they are other rows than before, or divided otherwise, and would be stored twice. So new rows begin only once
   every task that an earlier run has begun was found again by a task of this run. The task waits for them a little; then
   it is deferred: it reports success, and has stored nothing. The driver sees all reports and decides (`ends.py`).
3. After the batch is complete, no rows are new.

In the run that has begun the batch (`first`), a task whose slot nobody has needs no list of all tasks: a thousand tasks that
each list a thousand would cost as much as their rows.

Invariant: in a run after the first, rows are sent only under a lane whose first rows they have, or when all lanes begun
before have been found again.

Steps that a crash can interrupt: after the slot, nothing was sent, and the same rows find the slot. After a claim, this
run's task is bound to it by its retry; another run has claims of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from echoless.pipeline.exactly_once.batch_tasks import BatchTasks, SlotName, TaskFiles, TaskSlot
from echoless.pipeline.exactly_once.entries import TaskOrigin
from echoless.pipeline.exactly_once.errors import LedgerError, ReplayMismatchError
from echoless.pipeline.exactly_once.ledger import LaneUse

DEFER_AFTER_S: Final = 5.0
"""Seconds that a task with new rows waits for the others: each may hold the processor that another needs."""
_PAUSE_S: Final = 0.1


UseOfLane = Callable[[int], LaneUse]


class TaskKey(NamedTuple):
    """A task of one run of a batch."""

    run: str
    number: int
    digest: str

    @property
    def origin(self) -> TaskOrigin:
        return TaskOrigin(self.run, self.number)


class TaskIdentity:
    """The search of one attempt of a task."""

    def __init__(
        self,
        tasks: BatchTasks,
        task: TaskKey,
        use_of_lane: UseOfLane,
        *,
        defer_after_s: float = DEFER_AFTER_S,
    ) -> None:
        self._tasks = tasks
        self._task = task
        self._use_of_lane = use_of_lane
        self._defer_after_s = defer_after_s
        self._slots: dict[SlotName, TaskSlot] = {}
        self._begun_by: str | None = None
        """The run that began the batch; None: not known yet."""

    def find(self) -> TaskSlot | None:
        """Returns the task's slot; None: the task is deferred.

        Raises `LedgerError`; `ReplayMismatchError` if the batch is complete without these rows.
        """
        self._begun_by = self._tasks.first_run()
        if self._begun_by == self._task.run and (created := self._create_first()) is not None:
            return created
        deadline_s = time.monotonic() + self._defer_after_s
        while True:
            files = self._tasks.listing()
            if files.is_bound(self._task.run, self._task.number):
                return self._tasks.bound(self._task.run, self._task.number)
            found = self._match(files)
            if found is not None:
                return found
            if self._may_begin(files):
                created = self._create(files)
                if created is not None:
                    return created
            elif files.has_waited(self._task.run) or time.monotonic() > deadline_s:
                self._tasks.wait(self._task.run)
                return None
            else:
                time.sleep(_PAUSE_S)

    def _create_first(self) -> TaskSlot | None:
        """Creates the slot of a task of the first run; None: another task or attempt has the same first rows.

        Raises `ReplayMismatchError` if the batch is complete.
        """
        task = self._task
        slot = TaskSlot(SlotName(task.digest, 0), task.origin, task.number, task.run)
        if not self._tasks.create_slot(slot):
            return None
        self._check_incomplete()
        return slot

    def _match(self, files: TaskFiles) -> TaskSlot | None:
        """Finds an earlier task with these first rows that no other task of this run has."""
        task = self._task
        slots = [self._slot(name) for name in files.slots if name.digest == task.digest]
        for slot in slots:
            if slot.origin == task.origin:
                placed = self._placed(slot, files)
                return slot if placed == slot else self._tasks.bind(*task[:2], placed)
        others = [slot for slot in slots if slot.origin.run != task.run]
        for slot in sorted(others, key=self._preference):
            holder = self._tasks.claim(task.run, slot.origin, task.number)
            if holder == task.number:
                return self._tasks.bind(*task[:2], self._placed(slot, files))
            self._check_used(files, holder, slot)
        return None

    def _preference(self, slot: TaskSlot) -> tuple[bool, int]:
        return slot.origin.spark_partition != self._task.number, slot.name.occurrence

    def _placed(self, slot: TaskSlot, files: TaskFiles) -> TaskSlot:
        """Returns the slot with the lane that its task was bound to, or with a free one.

        Two runs at the same time, each with numbers of its own, may mean the same lane.
        """
        if files.is_bound(*slot.origin):
            return slot._replace(lane=self._tasks.bound(*slot.origin).lane)
        use = self._use_of_lane(slot.lane)
        if use.has_begun and use.origin not in (None, slot.origin):
            return slot._replace(lane=self._free_lane(files))
        return slot

    def _free_lane(self, files: TaskFiles) -> int:
        """Returns a lane above those of earlier runs; the task's number if there are none."""
        slots = [self._slot(name) for name in files.slots]
        lanes = [slot.lane for slot in slots if slot.origin.run != self._task.run]
        return max(lanes, default=-1) + 1 + self._task.number

    def _slot(self, name: SlotName) -> TaskSlot:
        """Reads a slot, which never changes, once."""
        found = self._slots.get(name)
        if found is None:
            found = self._slots[name] = self._tasks.slot(name)
        return found

    def _check_used(self, files: TaskFiles, holder: int, slot: TaskSlot) -> None:
        """Refuses to go on if the task that has claimed the slot was bound to another one meanwhile."""
        run = self._task.run
        if files.is_bound(run, holder) and self._tasks.bound(run, holder).origin != slot.origin:
            raise LedgerError(
                f"{self._tasks.what}: two attempts at Spark partition {holder} had different rows: "
                "nothing in the query may depend on time or randomness. Run the batch again"
            )

    def _may_begin(self, files: TaskFiles) -> bool:
        """Whether these rows may begin as new ones. Raises `ReplayMismatchError` if the batch is complete."""
        if files.is_complete:
            self._check_incomplete()
        if any(self._task.digest in self._tasks.admitted(run) for run in files.runs_with_admitted):
            return True
        is_first = self._first_run(files) == self._task.run
        return is_first or not self._not_found_again(files)

    def _check_incomplete(self) -> None:
        """Refuses new rows of a batch that is complete. Raises `ReplayMismatchError`."""
        tasks = self._tasks.completed()
        if tasks is not None:
            raise ReplayMismatchError(
                f"{self._tasks.what}, Spark partition {self._task.number}: the batch is complete, with "
                f"{tasks} Spark partitions that had rows, and none of them began with these: "
                f"the rows are others now, or divided into other Spark partitions{self._tasks.cause}"
            )

    def _first_run(self, files: TaskFiles) -> str:
        """Returns the run that began the batch: this one, if there is neither a record nor a slot, which names it, too."""
        if self._begun_by is None:
            slots = files.slots
            run = self._task.run
            self._begun_by = self._slot(slots[0]).first_run if slots else self._tasks.begin(run)
        return self._begun_by

    def _not_found_again(self, files: TaskFiles) -> bool:
        """Whether an earlier run has begun a task that this run has not found again yet."""
        run = self._task.run
        slots = [self._slot(name) for name in files.slots]
        waiting = [
            slot
            for slot in slots
            if slot.origin.run != run and not files.is_claimed(run, slot.origin)
        ]
        return any(is_begun(slot, files, self._tasks, self._use_of_lane) for slot in waiting)

    def _create(self, files: TaskFiles) -> TaskSlot | None:
        """Creates a slot; None if another task of the batch was faster: then the search begins again."""
        task = self._task
        first_run = self._first_run(files)
        is_first = first_run == task.run
        lane = task.number if is_first else self._free_lane(files)
        taken = {name.occurrence for name in files.slots if name.digest == task.digest}
        name = SlotName(task.digest, min(set(range(len(taken) + 1)) - taken))
        found = self._tasks.add_slot(TaskSlot(name, task.origin, lane, first_run))
        if found.origin != task.origin:
            return None
        return found if is_first else self._tasks.bind(*task[:2], found)


def is_begun(slot: TaskSlot, files: TaskFiles, tasks: BatchTasks, use_of_lane: UseOfLane) -> bool:
    """Whether the ledger has a `begin` of the slot's origin: rows may have been sent."""
    lane = tasks.bound(*slot.origin).lane if files.is_bound(*slot.origin) else slot.lane
    use = use_of_lane(lane)
    return use.has_begun and use.origin in (None, slot.origin)
