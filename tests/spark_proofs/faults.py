"""Executes the steps of a plan, each when its batch of the query has begun."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.spark_proofs import trip_wires
from tests.spark_proofs.drivers import LOOK_AGAIN_S
from tests.spark_proofs.numbered_source import first_number
from tests.spark_proofs.plan import IN_TASKS, Kind, Step
from tests.spark_proofs.spark_cluster import SparkCluster
from tests.spark_proofs.targets import Target
from tests.support.process_tree import kill

logger = logging.getLogger(__name__)

_WIRES: Final = {Kind.FAIL_TASK: trip_wires.FAIL, Kind.SLOW_TASK: trip_wires.SLOW}
_WORKER_WAIT_S: Final = 60.0


class Faults:
    """The steps outside the driver. Brokers and lost answers run in threads."""

    def __init__(self, spark: SparkCluster, target: Target) -> None:
        self.counts: Counter[Kind] = Counter()
        self.problems: list[str] = []
        self._spark = spark
        self._target = target
        self._broken: dict[Kind, threading.Thread] = {}

    def inflict(self, step: Step) -> None:
        """Begins the step; a lasting one ends by itself."""
        logger.info("batch %d: %s", step.batch, step.kind)
        match step.kind:
            case Kind.KILL_WORKER:
                self._kill_one(step, self._spark.python_workers)
            case Kind.KILL_EXECUTOR:
                self._kill_one(step, self._spark.executors)
            case Kind.KILL_BROKER:
                self._run(step, self._restart_broker)
            case Kind.LOSE_ANSWERS:
                self._run(step, self._lose_answers)
            case _:
                raise AssertionError(step.kind)

    def mend(self) -> None:
        """Returns when everything that was broken works again."""
        for thread in self._broken.values():
            thread.join()
        self._target.lose_answers(False)

    def _kill_one(self, step: Step, victims: Callable[[], list[int]]) -> None:
        """Waits for a victim: a driver that has just started has none yet."""
        deadline = time.monotonic() + _WORKER_WAIT_S
        while not (found := victims()) and time.monotonic() < deadline:
            time.sleep(LOOK_AGAIN_S)
        if found:
            self.counts[step.kind] += kill(found[step.choice % len(found)])

    def _run(self, step: Step, fault: Callable[[Step], None]) -> None:
        """Runs at most one fault of a kind at a time."""
        if (before := self._broken.get(step.kind)) is not None:
            before.join()
        self.counts[step.kind] += 1
        self._broken[step.kind] = threading.Thread(target=fault, args=[step])
        self._broken[step.kind].start()

    def _restart_broker(self, step: Step) -> None:
        broker = self._target.brokers[step.choice % len(self._target.brokers)]
        broker.kill()
        time.sleep(step.lasts_ms / 1000)
        broker.start()

    def _lose_answers(self, step: Step) -> None:
        self._target.lose_answers(True)
        time.sleep(step.lasts_ms / 1000)
        self._target.lose_answers(False)


def lay_wires(directory: Path, plan: Sequence[Step], rows_per_file: int) -> None:
    """Lays the wires of the plan that wait at a record."""
    directory.mkdir(parents=True)
    for step in plan:
        if step.kind in IN_TASKS:
            number = first_number(step.source) + step.batch * rows_per_file + step.row
            trip_wires.lay(directory, _WIRES[step.kind], number)


def tripped(directory: Path) -> Counter[Kind]:
    """How many of them were tripped."""
    return Counter({kind: trip_wires.tripped(directory, wire) for kind, wire in _WIRES.items()})
