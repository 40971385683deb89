"""Apache Flink with its exactly-once sink: killed at bad moments, stopped with a savepoint, and through the end of the epochs.

The sink's transactions outlive its processes: a checkpoint names each that is ready to be committed, and the next process sets
its producer id and epoch by reflection, commits it, and goes on. What was open otherwise it aborts: with the strategy
INCREMENTING by initialising ids until one is new, with POOLING by what the broker lists as open.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from echoless.protocol.state_records.transaction_records import TransactionEnd
from echoless.testkit.admin import Admin
from echoless.testkit.faults import Faults
from tests.applications.flink_job import PREFIX, CopiedTopics, FlinkJob
from tests.support.echoless import Echoless
from tests.transactions.aged import age, values

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.crash]

_PART = 30
_EPOCH_LAST = 32_766
"""The last epoch of a producer id that a client is given."""


def test_records_are_committed_once_each(tmp_path: Path, echoless: Echoless) -> None:
    """Killed with a checkpoint that is not committed and a transaction open, failed, and moved by a savepoint to other ids."""
    topics = CopiedTopics(echoless.kafka_address)
    job = FlinkJob(echoless.kafka_address, tmp_path / "flink", "INCREMENTING")

    def committed(count: int, *, asks: bool = False) -> None:
        topics.wait_for(count, is_committed=True, job=job, asks=asks)

    job.start()
    topics.write(_PART)
    topics.wait_for(_PART, is_committed=False, job=job)
    with Faults(Admin(echoless.admin_address)).rule(
        "drop_request", match={"api": "end_txn"}
    ) as lost:
        checkpoint = job.checkpoint()
        lost.wait_for_hits(1)
        job.kill()
    assert not topics.committed()

    job.start(checkpoint)
    committed(_PART)
    topics.write(_PART)
    topics.wait_for(2 * _PART, is_committed=False, job=job)
    job.kill()

    job.start(checkpoint)
    job.checkpoint()
    job.fail()
    topics.write(_PART)
    assert job.has_failed()
    committed(3 * _PART, asks=True)
    topics.write(_PART)
    topics.wait_for(4 * _PART, is_committed=False, job=job)
    savepoint = job.stop()
    committed(4 * _PART)
    job.kill()

    job.start(savepoint, prefix="other")
    topics.write(_PART)
    committed(5 * _PART, asks=True)
    assert topics.stored() > topics.committed(), "what was open was aborted"
    job.kill()


def test_a_commit_is_repeated_after_the_last_epoch(tmp_path: Path, echoless: Echoless) -> None:
    """With the last epoch of a producer id, after which the id has another: Flink fails for ever if it is answered 49 (FLINK-40689)."""
    topics = CopiedTopics(echoless.kafka_address)
    name = f"{PREFIX}-0-0"
    age(echoless, [name], _EPOCH_LAST - 1)
    before = values(echoless)[name].producer_id
    job = FlinkJob(echoless.kafka_address, tmp_path / "flink", "POOLING")
    job.start()
    topics.write(_PART)
    topics.wait_for(_PART, is_committed=False, job=job)
    checkpoint = job.checkpoint()
    topics.wait_for(_PART, is_committed=True, job=job)
    topics.write(_PART)
    topics.wait_for(2 * _PART, is_committed=False, job=job)
    job.kill()
    rotated = values(echoless)[name]
    assert rotated.ended == (before, _EPOCH_LAST, TransactionEnd.COMMITTED)
    assert rotated.producer_id != before

    job.start(checkpoint)
    topics.wait_for(2 * _PART, is_committed=True, job=job, asks=True)
    assert topics.stored() > topics.committed(), "what was open was aborted"
    job.kill()
