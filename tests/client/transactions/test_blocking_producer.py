"""Transactions with the blocking producer, against Echoless and Apache Kafka."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

import pytest

from echoless.client.async_producer import AsyncProducer
from echoless.client.errors import DeliveryError, ProducerError
from echoless.client.producer import Producer
from echoless.client.settings import Settings
from echoless.client.transactions.errors import AbortableError, FencedError
from echoless.client.transactions.group_metadata import GroupMetadata
from tests.support.echoless import Echoless
from tests.transactions.librdkafka import create_topic, read, read_until

_KAFKA = [
    pytest.param(name, marks=[pytest.mark.kafka, pytest.mark.slow])
    for name in ("apache_kafka", "apache_kafka_4")
]


class Place(NamedTuple):
    """A broker, and a topic with three partitions of its own."""

    address: str
    topic: str

    def producer(self, settings: Settings = Settings()) -> Producer:  # noqa: B008  immutable
        return Producer(self.address, settings, transactional_id=f"id-{self.topic}")


@pytest.fixture(params=["echoless", *_KAFKA])
def place(request: pytest.FixtureRequest) -> Place:
    """Each kind of broker."""
    broker: Echoless = request.getfixturevalue(request.param)
    topic = f"client-{uuid.uuid4()}"
    create_topic(broker.kafka_address, topic)
    return Place(broker.kafka_address, topic)


def send(producer: Producer, topic: str, *values: str) -> None:
    """Sends the values to the partitions in turn."""
    for number, value in enumerate(values):
        producer.send(topic, value.encode(), partition=number % 3)


def test_blocks_commit_or_abort(place: Place) -> None:
    """Records in several batches and partitions, those that were sent and those that were not yet."""
    address, topic = place
    with place.producer(Settings(batch_records_max=2)) as producer:
        with producer.transaction():
            send(producer, topic, *"abcdefgh")
        for is_flushed in (True, False):
            producer.begin_transaction()
            send(producer, topic, *"uvwxyz")
            unsent = producer.send(topic, b"open", partition=0)
            if is_flushed:
                producer.flush()
            producer.abort_transaction()
            if not is_flushed:
                with pytest.raises(DeliveryError, match="aborted"):
                    unsent.result()
        with producer.transaction():
            send(producer, topic, *"ijk")
            producer.send_batch(topic, 2, [(-1, 0, None, b"l", ())])
    read_until(address, "abcdefghijkl", topic)
    assert len(read(address, topic, committed=False)) >= 12 + 7


def test_calls_in_the_wrong_order(place: Place) -> None:
    """They say what to do instead, and change nothing."""
    with place.producer() as producer:
        for call in (
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send(place.topic, b"early", partition=0),
            lambda: producer.send_batch(place.topic, 0, [(-1, 0, None, b"early", ())]),
            lambda: producer.send_offsets({}, GroupMetadata("g")),
        ):
            with pytest.raises(ProducerError, match="begin one"):
                call()
        producer.begin_transaction()
        with pytest.raises(ProducerError, match="is open"):
            producer.begin_transaction()


def test_a_second_producer_fences_the_first(place: Place) -> None:
    """Whatever it is doing; what it had open is aborted."""
    address, topic = place
    with place.producer() as old, place.producer() as idle:
        with pytest.raises(FencedError), old.transaction():
            send(old, topic, "a")
        with pytest.raises(FencedError):
            old.begin_transaction()
        idle.begin_transaction()
        send(idle, topic, "b")
        idle.flush()
        with place.producer() as new:
            with pytest.raises(FencedError) as caught:
                idle.commit_transaction()
            assert not caught.value.may_be_committed
            with new.transaction():
                send(new, topic, "c")
    read_until(address, "c", topic)


def test_a_batch_that_fails(place: Place) -> None:
    """The transaction can only be aborted, the next one commits."""
    address, topic = place
    with place.producer() as producer:
        producer.begin_transaction()
        send(producer, topic, "a", "b", "x" * 2_000_000)
        with pytest.raises(DeliveryError):
            producer.flush()
        with pytest.raises(AbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            send(producer, topic, "c", "d", "e")
    read_until(address, "cde", topic)


def test_offsets_are_committed_with_the_records(place: Place) -> None:
    """An abort leaves those of the transaction before."""
    from confluent_kafka import Consumer, TopicPartition

    address, topic = place
    group = GroupMetadata(f"group-{topic}")
    with place.producer() as producer:
        with producer.transaction():
            send(producer, topic, "a")
            producer.send_offsets({(topic, 1): 5}, group)
        producer.begin_transaction()
        producer.send_offsets({(topic, 1): 9}, group)
        producer.abort_transaction()
    consumer = Consumer({"bootstrap.servers": address, "group.id": group.group_id})
    (found,) = consumer.committed([TopicPartition(topic, 1)], 30)
    assert found.offset == 5
    consumer.close()


def test_an_interrupted_commit_can_be_repeated(
    start_echoless: Callable[..., Echoless], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while it waits: the commit goes on, and the second call returns its outcome."""
    address = start_echoless().kafka_address
    create_topic(address)
    wait, interrupted = Future.result, []

    def result(self: Future[object], timeout: float | None = None) -> object:
        found = wait(self, timeout)
        if producer.is_in_transaction or interrupted or found is not None:
            return found
        interrupted.append(True)
        raise KeyboardInterrupt

    with Producer(address, transactional_id="t") as producer:
        producer.begin_transaction()
        send(producer, "orders", "a")
        producer.flush()
        monkeypatch.setattr(Future, "result", result)
        with pytest.raises(KeyboardInterrupt):
            producer.commit_transaction()
        producer.commit_transaction()
        with producer.transaction():
            send(producer, "orders", "b")
    read_until(address, "ab")


def interrupted(call: Callable[[], None]) -> None:
    """Calls it, and interrupts it as it begins to wait for the thread that does the work."""

    def result(_: Future[object]) -> object:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Future, "result", result)
        with pytest.raises(KeyboardInterrupt):
            call()


def test_an_interrupted_end_is_not_taken_for_the_other(
    start_echoless: Callable[..., Echoless],
) -> None:
    """An abort does not pass for done when the commit before it may be, nor the other way round; a block aborts nothing."""
    address = start_echoless().kafka_address
    create_topic(address)

    def commit_interrupted() -> None:
        with producer.transaction():
            send(producer, "orders", "a")
            interrupted(producer.commit_transaction)
            raise KeyboardInterrupt

    with Producer(address, transactional_id="t") as producer:
        with pytest.raises(KeyboardInterrupt):
            commit_interrupted()
        for call in (producer.abort_transaction, lambda: send(producer, "orders", "late")):
            with pytest.raises(ProducerError, match="commit again"):
                call()
        producer.commit_transaction()
        producer.begin_transaction()
        send(producer, "orders", "b")
        interrupted(producer.abort_transaction)
        with pytest.raises(ProducerError, match="abort again"):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            send(producer, "orders", "c")
    read_until(address, "ac")


def test_an_interrupted_call_does_not_go_on(
    start_echoless: Callable[..., Echoless], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets that nobody waits for any more would become part of the next transaction."""
    ended = threading.Event()

    async def send_offsets(*_: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(AsyncProducer, "send_offsets", send_offsets)
    with Producer(start_echoless().kafka_address, transactional_id="t") as producer:
        producer.begin_transaction()
        interrupted(lambda: producer.send_offsets({("orders", 0): 1}, GroupMetadata("g")))
        assert ended.wait(20)
        producer.abort_transaction()
