"""Calls of a transaction that their caller's time limit ends, at each turn of the loop, and what is called after them.

Nothing hangs, no outcome is wrong, and no number is used twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from echoless.client.async_producer import AsyncProducer
from echoless.client.coordinator import Coordinator
from echoless.client.errors import DeliveryError, ProducerError
from echoless.client.settings import Settings
from echoless.client.transactions.errors import AbortableError
from echoless.client.transactions.group_metadata import GroupMetadata
from tests.support.in_process import Running, in_process
from tests.transactions.in_process_reader import committed

TOPIC = "orders"
QUICK = Settings(retry_backoff_s=0.001, retry_backoff_max_s=0.01, delivery_timeout_s=20)
WITHIN_S = 60.0
"""Above all the client's own limits: what takes longer hangs."""
TURNS_MAX = 2000


@pytest.fixture(params=[1, 2], ids=["first", "second"])
async def running(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[Running]:
    """A broker, which is spoken to in each generation of the protocol."""
    if request.param == 1:
        monkeypatch.setattr(Coordinator, "finalized_level", lambda *_: 0)
    async with in_process(tmp_path, num_partitions=2) as running:
        yield running


class Cut:
    """Ends one call after another by cancelling it, each a few turns of the loop later than the one before."""

    def __init__(self) -> None:
        self._turns = 1
        self.is_over = False
        """Whether a call has ended before its turns were over: there is nothing left to cut."""

    async def __call__(self, call: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(call)
        for _ in range(self._turns):
            await asyncio.sleep(0)
        self.is_over = task.done() or self._turns > TURNS_MAX
        task.cancel()
        async with asyncio.timeout(WITHIN_S):
            await asyncio.gather(task, return_exceptions=True)
        self._turns += 1 + self._turns // 20


async def begun(producer: AsyncProducer, value: bytes) -> None:
    """A transaction with a stored record, one that is under way, and one in an open batch."""
    await producer.begin_transaction()
    await (await producer.send(TOPIC, value, partition=0))
    await producer.send_batch(TOPIC, 0, [(-1, 0, None, value, ())])
    await producer.send(TOPIC, value, partition=0)
    producer.submit(TOPIC, 1, [(-1, 0, None, value, ())], 22, asyncio.Future())


async def commit_next(producer: AsyncProducer, good: list[bytes]) -> None:
    """Commits a new value, and adds it to those that have to be read."""
    good.append(b"%d" % len(good))
    async with producer.transaction():
        await producer.send(TOPIC, good[-1], partition=0)


async def test_aborts_that_are_cut_short(running: Running) -> None:
    """Only another abort may follow, and finishes it: nothing is sent under the numbers that it gives up."""
    cut, good = Cut(), list[bytes]()
    async with AsyncProducer(running.kafka_address, QUICK, transactional_id="t") as producer:
        while not cut.is_over:
            await begun(producer, b"aborted")
            await cut(producer.abort_transaction())
            if not cut.is_over:
                for call in (producer.commit_transaction, producer.begin_transaction):
                    with pytest.raises(ProducerError, match="abort again"):
                        await call()
                with pytest.raises(ProducerError, match="abort again"):
                    await producer.send(TOPIC, b"late", partition=0)
                async with asyncio.timeout(WITHIN_S):
                    await producer.abort_transaction()
            await commit_next(producer, good)
    assert await committed(running, TOPIC) == good


async def test_commits_that_are_cut_short(running: Running) -> None:
    """The next commit says that it is committed."""
    cut, good = Cut(), list[bytes]()
    async with AsyncProducer(running.kafka_address, QUICK, transactional_id="t") as producer:
        while not cut.is_over:
            await producer.begin_transaction()
            good.append(b"%d" % len(good))
            await producer.send(TOPIC, good[-1], partition=0)
            await cut(producer.commit_transaction())
            if not cut.is_over:
                async with asyncio.timeout(WITHIN_S):
                    await producer.commit_transaction()
    assert await committed(running, TOPIC) == good


async def test_offsets_that_are_cut_short(running: Running) -> None:
    """The transaction can be aborted, and the next one commits."""
    cut, good = Cut(), list[bytes]()
    async with AsyncProducer(running.kafka_address, QUICK, transactional_id="t") as producer:
        while not cut.is_over:
            await producer.begin_transaction()
            await producer.send(TOPIC, b"aborted", partition=0)
            await cut(producer.send_offsets({(TOPIC, 1): len(good)}, GroupMetadata("readers")))
            async with asyncio.timeout(WITHIN_S):
                await producer.abort_transaction()
            await commit_next(producer, good)
    assert await committed(running, TOPIC) == good


async def test_closes_that_are_cut_short(running: Running) -> None:
    """Every delivery has an outcome, and the next close waits for the end; no task of the producer is left."""
    cut = Cut()
    while not cut.is_over:
        producer = AsyncProducer(running.kafka_address, QUICK, transactional_id="t")
        own = asyncio.all_tasks()
        await producer.start()
        await producer.begin_transaction()
        outcome: asyncio.Future[Any] = asyncio.Future()
        producer.submit(TOPIC, 0, [(-1, 0, None, b"v", ())], 22, outcome)
        await cut(producer.close())
        async with asyncio.timeout(WITHIN_S):
            await producer.close()
            await asyncio.gather(outcome, return_exceptions=True)
        left = [one for one in asyncio.all_tasks() - own if "client/" in str(one)]
        assert not left


async def test_a_batch_that_a_failed_transaction_refuses(running: Running) -> None:
    """Its delivery fails with the abort: nobody waits for it for ever."""
    async with AsyncProducer(running.kafka_address, QUICK, transactional_id="t") as producer:
        await producer.begin_transaction()
        waiting = await producer.send(TOPIC, b"good", partition=0)
        with pytest.raises(DeliveryError):
            await (await producer.send(TOPIC, b"x" * 2_000_000, partition=1))
        with pytest.raises(AbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises(DeliveryError, match="aborted"):
                await waiting


async def test_a_batch_that_cannot_be_encoded(running: Running) -> None:
    """The transaction cannot be committed without its records; not even by a second call."""
    async with AsyncProducer(running.kafka_address, QUICK, transactional_id="t") as producer:
        await producer.begin_transaction()
        await producer.send(TOPIC, b"one", partition=1)
        await producer.send(TOPIC, "text", partition=0)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            await producer.commit_transaction()
        with pytest.raises(AbortableError, match="encoded"):
            await producer.commit_transaction()
        await producer.abort_transaction()
    assert await committed(running, TOPIC, 1) == []
