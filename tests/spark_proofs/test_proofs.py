"""Short runs of the proofs: every kind of fault, and each record stored once, in order. `make proof` has the long ones."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from tests.spark_proofs.judge import Fault
from tests.spark_proofs.ledgers import CHECKPOINT
from tests.spark_proofs.plan import SHORT_PLAN, Kind
from tests.spark_proofs.query import DATA_SOURCE, FOREACH_BATCH, STOCK
from tests.spark_proofs.run import RunOptions, run
from tests.spark_proofs.verdict import Verdict
from tests.toolchain import require

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.time_limit(900)]

ROWS_PER_BATCH = 4_000
ALL = {**SHORT_PLAN, Kind.KILL_DRIVER: 1}


def _run(
    sink: str,
    target: str,
    counts: Mapping[Kind, int],
    batches: int = 4,
    ledger: str = CHECKPOINT,
) -> tuple[Path, Verdict]:
    directory = Path(tempfile.mkdtemp(prefix="spark-proofs-"))
    options = RunOptions(
        sink=sink,
        target=target,
        seed=1,
        records=batches * ROWS_PER_BATCH,
        batches=batches,
        counts=counts,
        ledger=ledger,
    )
    verdict = run(directory, options)
    verdict.print(Console(width=100))
    return directory, verdict


def _assert_kept(
    sink: str,
    target: str,
    counts: Mapping[Kind, int],
    batches: int = 4,
    ledger: str = CHECKPOINT,
) -> None:
    directory, verdict = _run(sink, target, counts, batches, ledger)
    assert verdict.is_kept, f"{verdict.failures}; every log is in {directory}"
    assert verdict.stored == verdict.records
    shutil.rmtree(directory)


def test_the_data_source_stores_each_record_once_in_echoless() -> None:
    """Tasks fail and have twins, workers, brokers and the driver are killed, answers are lost, the ledger's too."""
    require("java")
    _assert_kept(DATA_SOURCE, "echoless", ALL, ledger="faulty-s3")


@pytest.mark.kafka
def test_foreach_batch_stores_each_record_once_in_apache_kafka() -> None:
    """The same faults with the other form of the sink, and a broker that is not ours."""
    require("java", "kafka")
    _assert_kept(FOREACH_BATCH, "apache-kafka", ALL)


def test_two_drivers_at_once_store_each_record_once() -> None:
    """A driver that was only paused resumes beside its successor, on one checkpoint and ledger."""
    require("java")
    _assert_kept(DATA_SOURCE, "echoless", {Kind.SPLIT_BRAIN: 1, Kind.SLOW_TASK: 1}, batches=8)


def test_the_stock_sink_stores_records_twice_under_the_same_faults() -> None:
    """The faults bite: Spark's own sink writes the rows of a failed task again."""
    require("java", "spark-kafka")
    directory, verdict = _run(STOCK, "echoless", {Kind.FAIL_TASK: 6})
    assert verdict.findings[Fault.DUPLICATED] > 0
    assert verdict.findings[Fault.LOST] == 0
    shutil.rmtree(directory)
