"""One run: a source, a Spark cluster, a target and the query, with everything breaking as planned.

The plan follows the batches of the query: a step waits until its batch has begun. At the end no
executor is left that could still write, and the target is read and judged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from echoless.pipeline.kafka_connector import connector_settings
from tests.spark_proofs import event_log
from tests.spark_proofs.drivers import LOOK_AGAIN_S, Drivers, StuckError
from tests.spark_proofs.faults import Faults, lay_wires, tripped
from tests.spark_proofs.judge import judge
from tests.spark_proofs.ledgers import CHECKPOINT, STORES, options_of
from tests.spark_proofs.numbered_source import (
    PARTITIONS,
    SOURCES,
    batches_of_files,
    write_source,
)
from tests.spark_proofs.plan import IN_TASKS, Kind, Step, make_plan
from tests.spark_proofs.query import STOCK
from tests.spark_proofs.query import Options as QueryOptions
from tests.spark_proofs.spark_cluster import EXECUTOR_SETTINGS, SparkCluster
from tests.spark_proofs.stored_numbers import read_numbers
from tests.spark_proofs.targets import TARGETS, TOPIC, Target
from tests.spark_proofs.verdict import Verdict

logger = logging.getLogger(__name__)

QUERY_SETTINGS: Final = {
    **EXECUTOR_SETTINGS,
    # One file is one partition, whatever the current number of executors.
    "spark.sql.files.maxPartitionBytes": "4194304",
    "spark.sql.files.openCostInBytes": "4194304",
    # The order is judged by the batches that the checkpoint still has.
    "spark.sql.streaming.minBatchesToRetain": "10000",
    # Faults come in the middle of a task's writes.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "250",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "300ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.task.maxFailures": "20",
    "spark.executor.heartbeatInterval": "1s",
}
_EXECUTORS_END_S: Final = 60.0


@dataclass(slots=True, kw_only=True)
class RunOptions:
    """`counts`: the number of faults of each kind."""

    sink: str
    target: str
    seed: int
    records: int
    batches: int
    counts: Mapping[Kind, int]
    sink_options: Mapping[str, str] = field(default_factory=dict)
    ledger: str = CHECKPOINT

    @property
    def rows_per_file(self) -> int:
        return max(1, self.records // (self.batches * SOURCES))


class Run:
    """The parts of one run, in its own directory."""

    def __init__(self, directory: Path, options: RunOptions, target: Target) -> None:
        title = (
            f"{options.sink} into {options.target}, ledger {options.ledger}, seed {options.seed}"
        )
        self.verdict = Verdict(title=title)
        self._directory = directory
        self._options = options
        self._target = target
        self._wires = directory / "wires"
        self._events = directory / "events"
        self._spark = SparkCluster(directory / "spark")
        self._drivers = Drivers(directory, asdict(self._query_options()))

    def run(self) -> Verdict:
        """Runs from the first start to the verdict. Leaves nothing running."""
        options, verdict = self._options, self.verdict
        verdict.records = write_source(
            self._directory / "source", batches=options.batches, rows_per_file=options.rows_per_file
        )
        plan = make_plan(
            options.seed,
            options.counts,
            batches=options.batches,
            rows_per_file=options.rows_per_file,
        )
        lay_wires(self._wires, plan, options.rows_per_file)
        self._events.mkdir()
        try:
            self._target.create_topic(PARTITIONS)
            self._spark.start()
            self._break_things(plan)
            self._end_spark()
        finally:
            self._drivers.kill()
            self._spark.close()
        self._judge()
        return verdict

    def _break_things(self, plan: list[Step]) -> None:
        """Runs the query from its first batch to its last, with the plan."""
        faults, began = Faults(self._spark, self._target), time.monotonic()
        try:
            self._drivers.start()
            for step in plan:
                if step.kind not in IN_TASKS:
                    self._drivers.wait_for_batch(step.batch)
                    time.sleep(step.delay_ms / 1000)
                    self._inflict(step, faults)
            self._drivers.wait_until_done()
        except StuckError as error:
            self.verdict.problems.append(str(error))
        finally:
            faults.mend()
        self.verdict.seconds = time.monotonic() - began
        self.verdict.inflicted = faults.counts + tripped(self._wires)

    def _inflict(self, step: Step, faults: Faults) -> None:
        match step.kind:
            case Kind.KILL_DRIVER:
                logger.info("batch %d: %s", step.batch, step.kind)
                self._drivers.kill()
                self._drivers.start()
            case Kind.SPLIT_BRAIN:
                logger.info("batch %d: %s", step.batch, step.kind)
                self._drivers.split(step.lasts_ms / 1000)
            case _:
                faults.inflict(step)
                return
        faults.counts[step.kind] += 1

    def _end_spark(self) -> None:
        """Waits until no process is left that could write."""
        self._drivers.kill()
        deadline = time.monotonic() + _EXECUTORS_END_S
        while self._spark.executors() and time.monotonic() < deadline:
            time.sleep(LOOK_AGAIN_S)

    def _judge(self) -> None:
        options, verdict = self._options, self.verdict
        stored = read_numbers(self._target.client, TOPIC, PARTITIONS)
        verdict.stored = sum(map(len, stored))
        batches = batches_of_files(self._directory / "checkpoint", options.batches)
        verdict.findings = judge(stored, batches, options.rows_per_file)
        verdict.observed = {
            "batches with two files of each source": int(np.count_nonzero(np.diff(batches) == 0)),
            "drivers started": self._drivers.started,
            "drivers that ended by themselves": self._drivers.failures,
            **event_log.count_attempts(self._events),
            "answers lost": self._target.answers_lost,
        }

    def _query_options(self) -> QueryOptions:
        options = self._options
        connector = connector_settings() if options.sink == STOCK else {}
        security = {f"kafka.{name}": value for name, value in self._target.security.items()}
        return QueryOptions(
            master=self._spark.master,
            sink=options.sink,
            bootstrap_servers=self._target.bootstrap,
            topic=TOPIC,
            source=str(self._directory / "source"),
            wires=str(self._wires),
            checkpoint=str(self._directory / "checkpoint"),
            settings={**QUERY_SETTINGS, **event_log.settings(self._events), **connector},
            sink_options={**security, **options.sink_options},
        )


def run(directory: Path, options: RunOptions) -> Verdict:
    """Starts the target and the ledger's store, and runs."""
    with ExitStack() as stack:
        start = TARGETS[options.target]
        target = stack.enter_context(start(directory / "target", options.seed))
        if options.ledger != CHECKPOINT:
            serve = STORES[options.ledger]
            store = stack.enter_context(serve(directory / "store", options.seed))
            more = {**options_of(store), **options.sink_options}
            options = replace(options, sink_options=more)
        return Run(directory, options, target).run()
