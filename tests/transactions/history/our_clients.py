"""Producers in transactions of our own client, that write down what they see."""

from __future__ import annotations

import asyncio
import threading
import time

from echoless.client.async_producer import AsyncProducer, RecordDelivery
from echoless.client.errors import DeliveryError, ProducerError
from echoless.client.settings import Settings
from echoless.client.transactions.errors import AbortableError, TransactionError, UnansweredError
from echoless.client.transactions.group_metadata import GroupMetadata
from tests.transactions.history.events import Outcome, Place, Transaction
from tests.transactions.history.writing import (
    COPIES,
    ENDS,
    GIVE_UP_S,
    GROUP,
    INPUT,
    MOST_RECORDS,
    TRANSACTION_TIMEOUT_S,
    WRITTEN,
    Copying,
    Writing,
)

SETTINGS = Settings(
    batch_records_max=3,
    transaction_timeout_s=TRANSACTION_TIMEOUT_S,
    delivery_timeout_s=GIVE_UP_S,
    request_timeout_s=5,
)


class OurWriter(Writing[AsyncProducer]):
    """One transactional id, with one instance of a producer after another."""

    def __init__(self, name: str, bootstrap: str, seed: int, stopping: threading.Event) -> None:
        super().__init__(name, bootstrap, seed, stopping)
        self._deliveries: list[tuple[int, RecordDelivery]] = []

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        while not self.stopping.is_set():
            producer = self.producer or await self._start()
            await self._transact(producer, self.dice.choice(ENDS))
        await (self.producer or await self._start()).close()

    async def _start(self) -> AsyncProducer:
        """A new instance, which ends what the last one left open."""
        producer = AsyncProducer(self.bootstrap, SETTINGS, transactional_id=self.name)
        await producer.start()
        self.has_begun(producer)
        return producer

    async def fill(self, producer: AsyncProducer, one: Transaction) -> bool:
        """Sends the records of a transaction; returns whether there are any."""
        for _ in range(self.dice.randint(1, MOST_RECORDS)):
            await self.send(producer, one, self.dice.choice(WRITTEN))
            await asyncio.sleep(self.dice.choice((0, 0, 0.005)))
        return True

    async def send(
        self, producer: AsyncProducer, one: Transaction, place: Place, source: str | None = None
    ) -> None:
        """Sends a new value."""
        value = self.new_value(one, place, source)
        delivery = await producer.send(place[0], value.encode(), partition=place[1])
        self._deliveries.append((len(one.sent) - 1, delivery))

    async def _transact(self, producer: AsyncProducer, end: str) -> None:
        one = self.new_transaction()
        self._deliveries.clear()
        try:
            await producer.begin_transaction()
            self.transactions.append(one)
            if not await self.fill(producer, one):
                end = "abort"
            if end in ("commit", "hasty"):
                await self._commit(producer, one, is_hasty=end == "hasty")
            else:
                one.outcome = Outcome.FAILED
                if end == "abort":
                    await producer.abort_transaction()
                else:
                    await self._drop(producer, self.dice.uniform(0, 0.05))
        except (AbortableError, DeliveryError) as error:
            self.counts[f"ours: {type(error).__name__}"] += 1
            one.outcome = Outcome.FAILED
            await self._abort(producer)
        except ProducerError as error:
            self.counts[f"ours: {type(error).__name__}"] += 1
            is_open = isinstance(error, TransactionError) and error.may_be_committed
            one.outcome = Outcome.UNKNOWN if is_open else Outcome.FAILED
            await self._drop(producer)
        self.counts[f"{end}: {one.outcome.value}"] += 1
        if one.outcome is not Outcome.OK:
            self.aborted()

    async def _commit(self, producer: AsyncProducer, one: Transaction, *, is_hasty: bool) -> None:
        """Commits; a producer that runs out of patience does not know whether it did."""
        one.committing = time.monotonic()
        try:
            async with asyncio.timeout(self.dice.uniform(0, 0.02) if is_hasty else None):
                await producer.commit_transaction()
        except TimeoutError:
            await self._drop(producer)
            return
        one.outcome = Outcome.OK
        for index, delivery in self._deliveries:
            acknowledged = await delivery
            one.sent[index] = one.sent[index]._replace(offset=acknowledged.offset)

    async def _abort(self, producer: AsyncProducer) -> None:
        try:
            await producer.abort_transaction()
        except UnansweredError:
            raise
        except TransactionError as error:
            self.counts[f"ours, abort: {type(error).__name__}"] += 1
            await self._drop(producer)

    async def _drop(self, producer: AsyncProducer, after_s: float = 0.0) -> None:
        await asyncio.sleep(after_s)
        await producer.close()
        self.producer = None


class OurCopier(Copying[AsyncProducer], OurWriter):
    """Copies the input."""

    async def fill(self, producer: AsyncProducer, one: Transaction) -> bool:
        taken = self.taken(one)
        if not taken:
            return False
        for seen in taken:
            await self.send(producer, one, COPIES, seen.value)
        await producer.send_offsets({INPUT: taken[-1].offset + 1}, GroupMetadata(GROUP))
        return True
