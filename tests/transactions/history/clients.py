"""Producers in transactions and readers of committed records, of librdkafka, one thread each, that write down what they see."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaException, Producer, TopicPartition

from tests.transactions.history.events import Outcome, Place, Seen, Transaction
from tests.transactions.history.writing import (
    CALL_S,
    COPIES,
    ENDS,
    GIVE_UP_S,
    INPUT,
    MOST_RECORDS,
    PLACES,
    TRANSACTION_TIMEOUT_S,
    WRITTEN,
    Client,
    Copying,
    Writing,
    consumer_of,
)


class Writer(Writing[Producer]):
    """One transactional id, with one instance of a producer after another."""

    def work(self) -> None:
        while not self.stopping.is_set():
            producer = self.producer or self._start()
            self._transact(producer, self.dice.choice(ENDS))
        if self.producer is None:
            self._start()  # ends what the last instance left open

    def _start(self) -> Producer:
        until = time.monotonic() + GIVE_UP_S
        while True:
            producer = Producer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "transactional.id": self.name,
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_S * 1000,
                    "reconnect.backoff.max.ms": 500,
                    "metadata.recovery.strategy": "none",  # or it may stall for ever: librdkafka issue 5511
                    "linger.ms": 2,
                    "log_level": 0,
                }
            )
            try:
                producer.init_transactions(CALL_S)
            except KafkaException as error:
                self.counts[f"init: {error.args[0].name()}"] += 1
                _check(until, error)
                continue
            self.has_begun(producer)
            return producer

    def fill(self, producer: Producer, one: Transaction) -> bool:
        """Sends the records of a transaction; returns whether there are any."""
        for _ in range(self.dice.randint(1, MOST_RECORDS)):
            self.send(producer, one, self.dice.choice(WRITTEN))
            producer.poll(self.dice.choice((0, 0, 0.005)))
        return True

    def send(
        self, producer: Producer, one: Transaction, place: Place, source: str | None = None
    ) -> None:
        """Sends a new value, and has its offset written down when it is acknowledged."""
        index, value = len(one.sent), self.new_value(one, place, source)

        def acknowledge(error: Any, message: Any) -> None:
            if error is None and message.offset() >= 0:
                one.sent[index] = one.sent[index]._replace(offset=message.offset())

        producer.produce(place[0], value.encode(), partition=place[1], on_delivery=acknowledge)

    def _transact(self, producer: Producer, end: str) -> None:
        one = self.new_transaction()
        try:
            producer.begin_transaction()
            self.transactions.append(one)
            if not self.fill(producer, one):
                end = "abort"
        except KafkaException as error:
            one.outcome = Outcome.FAILED
            self._recover(producer, error)
            return
        match end:
            case "commit":
                self._commit(producer, one, GIVE_UP_S)
            case "hasty":
                self._commit(producer, one, self.dice.uniform(0, 0.02))
            case "abort":
                one.outcome = Outcome.FAILED
                self._abort(producer)
            case _:
                one.outcome = Outcome.FAILED
                producer.flush(self.dice.uniform(0, 0.05))
                self._drop(producer)
        self.counts[f"{end}: {one.outcome.value}"] += 1
        if one.outcome is not Outcome.OK:
            self.aborted()

    def _commit(self, producer: Producer, one: Transaction, patience_s: float) -> None:
        """Commits; a producer that runs out of patience, or has to end, does not know whether it did."""
        one.committing = time.monotonic()
        until = one.committing + patience_s
        while True:
            try:
                producer.commit_transaction(min(CALL_S, patience_s))
            except KafkaException as error:
                failed = error.args[0]
                self.counts[f"commit: {failed.name()}"] += 1
                if failed.txn_requires_abort():
                    one.outcome = Outcome.FAILED
                    self._abort(producer)
                    return
                if failed.retriable() and time.monotonic() < until:
                    continue
                if patience_s >= CALL_S:
                    _check(until, error)
                self._drop(producer)
                return
            producer.poll(0)
            one.outcome = Outcome.OK
            return

    def _abort(self, producer: Producer) -> None:
        until = time.monotonic() + GIVE_UP_S
        while True:
            try:
                producer.abort_transaction(CALL_S)
            except KafkaException as error:
                failed = error.args[0]
                self.counts[f"abort: {failed.name()}"] += 1
                _check(until, error)
                if failed.retriable():
                    continue
                self._drop(producer)
            return

    def _recover(self, producer: Producer, error: KafkaException) -> None:
        """Aborts after an error of a send."""
        failed = error.args[0]
        self.counts[f"send: {failed.name()}"] += 1
        if failed.fatal():
            self._drop(producer)
        else:
            self._abort(producer)
        self.aborted()

    def _drop(self, producer: Producer) -> None:
        producer.purge(
            blocking=False
        )  # else it waits without limit for each of its brokers' threads
        self.producer = None


class Copier(Copying[Producer], Writer):
    """Copies the input."""

    def fill(self, producer: Producer, one: Transaction) -> bool:
        taken = self.taken(one)
        if not taken:
            return False
        for seen in taken:
            self.send(producer, one, COPIES, seen.value)
        producer.send_offsets_to_transaction(
            [TopicPartition(*INPUT, taken[-1].offset + 1)],
            self.consumer.consumer_group_metadata(),
            CALL_S,
        )
        return True


class Reader(Client):
    """Reads every partition from its first offset, to the end of the run."""

    def __init__(self, name: str, bootstrap: str, stopping: threading.Event) -> None:
        super().__init__(name, stopping)
        self.seen: list[Seen] = []
        self.last: dict[Place, int] = {}
        self.errors: Counter[str] = Counter()
        self._addresses = bootstrap

    def work(self) -> None:
        consumer = consumer_of(self._addresses, self.name)
        consumer.assign([TopicPartition(*place, 0) for place in PLACES])
        while not self.stopping.is_set():
            for message in consumer.consume(500, 0.2):
                self._take(message)
        consumer.close()

    def _take(self, message: Any) -> None:
        if message.error() is not None:
            self.errors[message.error().name()] += 1
            return
        place, offset = (message.topic(), message.partition()), message.offset()
        self.seen.append(Seen(place, offset, message.value().decode(), time.monotonic()))
        self.last[place] = offset


def read_to_the_ends(bootstrap: str, places: Iterable[Place]) -> dict[Place, list[tuple[int, str]]]:
    """Every committed record below the last stable offsets, by place. Raises AssertionError if it takes too long."""
    found: dict[Place, list[tuple[int, str]]] = {place: [] for place in places}
    consumer = consumer_of(bootstrap, "final")
    consumer.assign([TopicPartition(*place, 0) for place in found])
    ended: set[Place] = set()
    until = time.monotonic() + GIVE_UP_S
    while len(ended) < len(found):
        assert time.monotonic() < until, f"only {ended} were read to their ends"
        for message in consumer.consume(500, 0.2):
            place = (message.topic(), message.partition())
            if message.error() is None:
                found[place].append((message.offset(), message.value().decode()))
            elif message.error().name() == "_PARTITION_EOF":
                ended.add(place)
    consumer.close()
    return found


def _check(until: float, error: KafkaException) -> None:
    """Raises TimeoutError if it is too late to go on after an error."""
    if time.monotonic() > until:
        raise TimeoutError(f"not done within {GIVE_UP_S} s: {error}") from error
