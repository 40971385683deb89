"""A transactional producer and readers of librdkafka."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "orders"
PARTITIONS = 3
WITHIN_S = 90.0


def create_topic(bootstrap: str, topic: str = TOPIC, *, replicas: int = 1) -> None:
    """Makes the topic and returns once it is there."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.list_topics(timeout=WITHIN_S)
    admin.create_topics([NewTopic(topic, PARTITIONS, replicas)])[topic].result(WITHIN_S)


def transactional(bootstrap: str, name: str = "t", *, timeout_ms: int = 60_000) -> Producer:
    """A producer whose `init_transactions` has returned."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
            "log_level": 0,
        }
    )
    producer.init_transactions(WITHIN_S)
    return producer


def send(producer: Producer, values: Iterable[str], *, flush: bool = True) -> None:
    """Sends one record of each value, spread over all partitions."""
    errors: list[object] = []
    for number, value in enumerate(values):
        producer.produce(
            TOPIC,
            value.encode(),
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: errors.append(error),
        )
    if flush:
        assert producer.flush(WITHIN_S) == 0
        assert not any(errors), errors


def read(bootstrap: str, topic: str = TOPIC, *, committed: bool = True) -> list[str]:
    """Every value that a reader of this isolation finds, in no order, up to the ends of all partitions."""
    isolation = "read_committed" if committed else "read_uncommitted"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: list[str] = []
    ended: set[int] = set()
    until = time.monotonic() + WITHIN_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < until, f"{len(ended)} partitions were read to their end"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            ended.add(message.partition())
        else:
            found.append(message.value().decode())
    consumer.close()
    return sorted(found)


def read_until(bootstrap: str, wanted: Iterable[str], topic: str = TOPIC) -> None:
    """Returns once a reader of committed records finds exactly these: markers follow the answer to a commit."""
    expected, until = sorted(wanted), time.monotonic() + WITHIN_S
    while (found := read(bootstrap, topic)) != expected:
        assert time.monotonic() < until, found
