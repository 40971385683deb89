"""Producers in transactions of our own client, that write down what they see."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter

from confluent_kafka import TopicPartition

from echoless.client.async_producer import AsyncProducer, RecordDelivery
from echoless.client.errors import DeliveryError, ProducerError
from echoless.client.settings import Settings
from echoless.client.transactions.errors import AbortableError, TransactionError, UnansweredError
from echoless.client.transactions.group_metadata import GroupMetadata
from tests.transactions.history.clients import (
    CALL_S,
    COPIES,
    ENDS,
    GIVE_UP_S,
    GROUP,
    INPUT,
    MOST_RECORDS,
    TRANSACTION_TIMEOUT_S,
    WRITTEN,
    Client,
    consumer_of,
    until_answered,
)
from tests.transactions.history.events import Outcome, Place, Seen, Sent, Transaction

SETTINGS = Settings(
    batch_records_max=3,
    transaction_timeout_s=TRANSACTION_TIMEOUT_S,
    delivery_timeout_s=GIVE_UP_S,
    request_timeout_s=5,
)


class OurWriter(Client):
    """One transactional id, with one instance of a producer after another."""

    def __init__(self, name: str, bootstrap: str, seed: int, stopping: threading.Event) -> None:
        super().__init__(name, stopping)
        self.transactions: list[Transaction] = []
        self.counts: Counter[str] = Counter()
        self._servers = bootstrap
        self.dice = random.Random(f"{seed} {name}")
        self._producer: AsyncProducer | None = None
        self._deliveries: list[tuple[int, RecordDelivery]] = []
        self._instances = 0
        self._values = 0

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        while not self.stopping.is_set():
            producer = self._producer or await self._start()
            await self._transact(producer, self.dice.choice(ENDS))
        await (self._producer or await self._start()).close()

    async def _start(self) -> AsyncProducer:
        """A new instance, which ends what the last one left open."""
        producer = AsyncProducer(self._servers, SETTINGS, transactional_id=self.name)
        await producer.start()
        self._instances += 1
        self._producer = producer
        self.started()
        return producer

    def started(self) -> None:
        """Is called when a new instance has fenced the one before."""

    def aborted(self) -> None:
        """Is called when a transaction did not commit."""

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
        self._values += 1
        value = f"{self.name}-{self._values}"
        one.sent.append(Sent(place, value, None, source))
        delivery = await producer.send(place[0], value.encode(), partition=place[1])
        self._deliveries.append((len(one.sent) - 1, delivery))

    async def _transact(self, producer: AsyncProducer, end: str) -> None:
        one = Transaction(
            process=f"{self.name}/{self._instances}", name=self.name, began=time.monotonic()
        )
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
        self._producer = None


class OurCopier(OurWriter):
    """Copies the input; offsets are committed in the transactions that copy."""

    def __init__(self, name: str, bootstrap: str, seed: int, stopping: threading.Event) -> None:
        super().__init__(name, bootstrap, seed, stopping)
        self._consumer = consumer_of(bootstrap, GROUP)

    def started(self) -> None:
        self._return()

    def aborted(self) -> None:
        if self._producer is not None:
            self._return()

    async def fill(self, producer: AsyncProducer, one: Transaction) -> bool:
        following = None
        for message in self._consumer.consume(MOST_RECORDS, 0.3):
            if message.error() is not None:
                continue
            offset, value = message.offset() or 0, (message.value() or b"").decode()
            one.seen.append(Seen(INPUT, offset, value, time.monotonic()))
            await self.send(producer, one, COPIES, value)
            following = offset + 1
        if following is None:
            return False
        await producer.send_offsets({INPUT: following}, GroupMetadata(GROUP))
        return True

    def _return(self) -> None:
        """Reads on from the committed offset."""
        offset = until_answered(
            lambda: self._consumer.committed([TopicPartition(*INPUT)], CALL_S)[0]
        ).offset
        self._consumer.assign([TopicPartition(*INPUT, max(offset, 0))])
