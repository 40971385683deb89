"""Histories that break a sink whose tasks write in transactions and whose driver commits them (`docs/sink.md`).

A task sends its rows, and ends with its transaction open; the driver is given transactional id, producer id and epoch,
records all of them, and commits one after the other. It is what Flink's sink does, and the only way in which a driver
can decide for tasks that have ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from echoless.client.async_producer import AsyncProducer
from echoless.client.cluster import Cluster, parse_addresses
from echoless.client.sequenced_batch import Identity
from echoless.client.settings import Settings
from echoless.client.transactions.errors import AbortableError, FencedError
from echoless.client.transactions.session import TransactionalSession
from echoless.coordinators.events import TimerFired
from echoless.coordinators.transactions.coordinator import IdTimer
from echoless.coordinators.transactions.effects import TransactionTimer, TransactionTimerKind
from tests.support.in_process import Running, in_process
from tests.transactions.in_process_reader import committed, until_stable

TOPIC = "rows"
_TIMEOUT_MS = round(1000 * Settings().transaction_timeout_s)


class Prepared(NamedTuple):
    """The report of a task to its driver."""

    transactional_id: str
    identity: Identity


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A broker whose topics have two partitions."""
    async with in_process(tmp_path, num_partitions=2) as running:
        yield running


async def attempt(running: Running, transactional_id: str, partition: int) -> Prepared:
    """One attempt of the task of a partition: stores a row, and leaves the rest to the driver."""
    producer = AsyncProducer(running.kafka_address, transactional_id=transactional_id)
    await producer.start()
    await producer.begin_transaction()
    stored = await (await producer.send(TOPIC, b"row", partition=partition))
    await producer.close()
    return Prepared(transactional_id, Identity(stored.producer_id, stored.producer_epoch))


def run_out(running: Running, transactional_id: str) -> None:
    """Ends the time of an open transaction at once: a short one might end before the test is ready for it."""
    timeout = IdTimer(transactional_id, TransactionTimer(TransactionTimerKind.TIMEOUT))
    shards = running.broker.transactions.shards.values()
    (shard,) = (one for one in shards if timeout in one._timers._handles)
    now = shard._now()
    late = now._replace(monotonic_ms=now.monotonic_ms + _TIMEOUT_MS)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shard, "_now", lambda: late)
        shard.deliver(TimerFired(timeout))


async def commit(running: Running, prepared: Prepared) -> None:
    """The driver's commit of a task that has ended. Raises `TransactionError`."""
    cluster = Cluster(parse_addresses(running.kafka_address), timeout_s=10)
    session = TransactionalSession(cluster, prepared.transactional_id, Settings())
    session.identity, session.raises_epoch = prepared.identity, True
    try:
        await session.commit()
    finally:
        await cluster.close()


async def rows(running: Running) -> list[int]:
    """The rows of each partition that readers of committed records see, once nothing is open."""
    return [len(await committed(running, TOPIC, index)) for index in range(2)]


async def test_a_driver_that_comes_back_too_late(running: Running) -> None:
    """It has recorded the batch and committed the first task, then dies; the second one's time is over meanwhile."""
    first = await attempt(running, "sink-7-0", 0)
    second = await attempt(running, "sink-7-1", 1)
    await commit(running, first)
    run_out(running, "sink-7-1")
    await until_stable(running, TOPIC, 1)
    with pytest.raises(AbortableError):
        await commit(running, second)
    await commit(running, first)  # a driver that comes back repeats all of them
    assert await rows(running) == [1, 0]


async def test_an_attempt_that_begins_after_the_task_was_decided(running: Running) -> None:
    """One id for the attempts of a task: a speculative one, or a zombie, aborts what the driver has recorded."""
    chosen = await attempt(running, "sink-7-0", 0)
    await attempt(running, "sink-7-0", 0)
    with pytest.raises(FencedError):
        await commit(running, chosen)


async def test_an_attempt_of_its_own_id_that_no_one_commits(running: Running) -> None:
    """An id for each attempt: the loser's rows stay open, and hold up every reader until its time is over."""
    chosen = await attempt(running, "sink-7-0-attempt-0", 0)
    await attempt(running, "sink-7-0-attempt-1", 0)
    await commit(running, chosen)
    partition = running.broker.partitions[TOPIC, 0]
    assert partition.last_stable_offset < partition.log.log_end_offset
    run_out(running, "sink-7-0-attempt-1")
    assert len(await committed(running, TOPIC)) == 1
