"""Consume, transform, produce with librdkafka, while the broker is killed: records and offsets are committed together.

librdkafka (2.16; by its code since 2.10) bootstraps anew when no broker answers, which takes leave of a broker's handle
that its cache of coordinators still holds: `send_offsets_to_transaction` waits for that handle for ever, with Apache
Kafka as well (confluentinc/librdkafka issue 5511). With `metadata.recovery.strategy=none` it keeps the handle, and goes on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.support.echoless import Echoless
from tests.transactions.copied import (
    GROUP,
    INPUTS,
    OUTPUTS,
    PARTITIONS,
    PER_TRANSACTION,
    RECORDS,
    WITHIN_S,
    fill,
    read_all,
)

pytestmark = [pytest.mark.slow, pytest.mark.crash]

KILLED_AFTER = (1, 4, 7)
"""Transactions begun when the broker is killed, in the midst of them."""
ABORTED_AFTER = (3, 6)
"""Transactions begun that are aborted, with their records and offsets in them."""
COMES_BACK = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
)
"""Errors of a coordinator that is starting; calls outside transactions are not marked as retriable."""


class Copier:
    """Copies records in transactions, as applications do it: what fails is aborted, and read again from what is committed."""

    def __init__(self, address: str, broker: Echoless) -> None:
        self.server = {
            "bootstrap.servers": address,
            "log_level": 0,
            "metadata.recovery.strategy": "none",
            "reconnect.backoff.max.ms": 500,
        }
        self.broker = broker
        self.begun = 0
        self.consumer = Consumer(
            {
                **self.server,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self.consumer.assign(self.committed())
        self.producer = self.new_producer()

    def new_producer(self) -> Producer:
        producer = Producer(
            {**self.server, "transactional.id": "copier", "transaction.timeout.ms": 60_000}
        )
        repeated(lambda: producer.init_transactions(WITHIN_S))
        return producer

    def committed(self) -> list[TopicPartition]:
        """The offsets to go on from."""
        wanted = [TopicPartition(INPUTS, index) for index in range(PARTITIONS)]
        found = repeated(lambda: self.consumer.committed(wanted, WITHIN_S))
        return [TopicPartition(INPUTS, one.partition, max(one.offset, 0)) for one in found]

    def run(self) -> None:
        """Copies until the group has committed the end of each partition."""
        until = time.monotonic() + 3 * WITHIN_S
        while sum(one.offset for one in self.committed()) < RECORDS:
            assert time.monotonic() < until, self.committed()
            try:
                self.transact()
            except KafkaException as error:
                self.recover(error)
        self.consumer.close()

    def transact(self) -> None:
        records = self.consumer.consume(PER_TRANSACTION, 2.0)
        self.producer.begin_transaction()
        self.begun += 1
        for record in records:
            if record.error() is None:
                self.producer.produce(OUTPUTS, record.value(), partition=record.partition())
        if self.begun in KILLED_AFTER:
            self.broker.kill()
            self.broker.start()
        positions = [
            one for one in self.consumer.position(self.consumer.assignment()) if one.offset >= 0
        ]
        metadata = self.consumer.consumer_group_metadata()
        repeated(lambda: self.producer.send_offsets_to_transaction(positions, metadata, WITHIN_S))
        if self.begun == KILLED_AFTER[-1] + 1:  # the offsets are in it, the end is not
            self.broker.kill()
            self.broker.start()
        if self.begun in ABORTED_AFTER:
            assert self.producer.flush(WITHIN_S) == 0
            self.abort()
        else:
            repeated(lambda: self.producer.commit_transaction(WITHIN_S))

    def abort(self) -> None:
        """Ends the transaction without a trace, and goes on where the group stands."""
        repeated(lambda: self.producer.abort_transaction(WITHIN_S))
        self.consumer.assign(self.committed())

    def recover(self, error: KafkaException) -> None:
        if error.args[0].txn_requires_abort():
            self.abort()
        else:
            self.producer = self.new_producer()
            self.consumer.assign(self.committed())


def repeated(call: Callable[[], object]) -> object:
    """Makes the call until it does not fail with an error that asks for another try; returns what it returned."""
    until = time.monotonic() + WITHIN_S
    while True:
        try:
            return call()
        except KafkaException as error:
            again = error.args[0].retriable() or error.args[0].code() in COMES_BACK
            if not again or time.monotonic() > until:
                raise
            time.sleep(0.05)


def test_every_record_is_copied_once(start_echoless: Callable[..., Echoless]) -> None:
    """Killed with records only, and with offsets, in an open transaction, and aborted: committed records are there once each."""
    broker = start_echoless()
    address = broker.kafka_address
    values = fill(address)
    copier = Copier(address, broker)
    copier.run()
    assert copier.begun > KILLED_AFTER[-1]
    assert Counter(read_all(address, "read_committed")) == Counter(values)
    assert Counter(read_all(address, "read_uncommitted")) > Counter(values)
