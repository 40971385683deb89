"""The common parts of writers of all families: their names and values, what they write down, and the copiers' way through the input."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.transactions.history.events import Place, Seen, Sent, Transaction

P = TypeVar("P")
"""A family's producer."""
T = TypeVar("T")
INPUT: Final[Place] = ("t", 0)
COPIES: Final[Place] = ("copies", 0)
WRITTEN: Final[tuple[Place, ...]] = (INPUT, ("t", 1), ("t", 2))
PLACES: Final[tuple[Place, ...]] = (*WRITTEN, COPIES)
GROUP: Final = "copiers"
TRANSACTION_TIMEOUT_S: Final = 15
CALL_S: Final = 10.0
GIVE_UP_S: Final = 90.0
"""How long a step of a producer may last; longer is a problem of the run."""
MOST_RECORDS: Final = 6
ENDS: Final = ("commit",) * 14 + ("abort",) * 3 + ("abandon",) + ("hasty",) * 2


def consumer_of(bootstrap: str, group: str) -> Consumer:
    """A reader of committed records that commits nothing by itself and reports the ends of partitions."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )


class Client(threading.Thread):
    """A thread whose unexpected end is a problem of the run."""

    def __init__(self, name: str, stopping: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = stopping
        self.problems: list[str] = []

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - the verdict names it
            self.problems.append(f"{self.name}: {error!r}")

    def work(self) -> None:
        raise NotImplementedError


class Writing(Client, Generic[P]):
    """One transactional id, with one instance of a producer after another."""

    def __init__(self, name: str, bootstrap: str, seed: int, stopping: threading.Event) -> None:
        super().__init__(name, stopping)
        self.transactions: list[Transaction] = []
        self.counts: Counter[str] = Counter()
        self.bootstrap = bootstrap
        self.dice = random.Random(f"{seed} {name}")
        self.producer: P | None = None
        self._instances = 0
        self._values = 0

    def has_begun(self, producer: P) -> None:
        """Goes on with a new instance, which has ended what the last one left open."""
        self._instances += 1
        self.producer = producer
        self.started()

    def started(self) -> None:
        """Is called when a new instance has fenced the one before."""

    def aborted(self) -> None:
        """Is called when a transaction did not commit."""

    def new_transaction(self) -> Transaction:
        """The notes of the next transaction."""
        process = f"{self.name}/{self._instances}"
        return Transaction(process=process, name=self.name, began=time.monotonic())

    def new_value(self, one: Transaction, place: Place, source: str | None) -> str:
        """A value that no one else sends, written down as sent."""
        self._values += 1
        value = f"{self.name}-{self._values}"
        one.sent.append(Sent(place, value, None, source))
        return value


class Copying(Writing[P]):
    """One that copies the input; offsets are committed in the transactions that copy."""

    def __init__(self, name: str, bootstrap: str, seed: int, stopping: threading.Event) -> None:
        super().__init__(name, bootstrap, seed, stopping)
        self.consumer = consumer_of(bootstrap, GROUP)

    def started(self) -> None:
        self._return()

    def aborted(self) -> None:
        if self.producer is not None:
            self._return()

    def taken(self, one: Transaction) -> list[Seen]:
        """Reads on; what comes is written down as read in the transaction."""
        found = [
            Seen(INPUT, message.offset() or 0, (message.value() or b"").decode(), time.monotonic())
            for message in self.consumer.consume(MOST_RECORDS, 0.3)
            if message.error() is None
        ]
        one.seen += found
        return found

    def _return(self) -> None:
        """Reads on from the committed offset."""
        offset = until_answered(
            lambda: self.consumer.committed([TopicPartition(*INPUT)], CALL_S)[0]
        ).offset
        self.consumer.assign([TopicPartition(*INPUT, max(offset, 0))])


def until_answered(ask: Callable[[], T]) -> T:
    """The answer, as soon as no error takes its place."""
    until = time.monotonic() + GIVE_UP_S
    while True:
        try:
            return ask()
        except KafkaException:
            if time.monotonic() > until:
                raise
