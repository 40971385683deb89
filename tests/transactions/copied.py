"""The topics of a copy in transactions: filled before it, and read after it."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

INPUTS, OUTPUTS, GROUP = "inputs", "outputs", "copier"
PARTITIONS, RECORDS, PER_TRANSACTION = 3, 180, 15
WITHIN_S = 120.0


def fill(bootstrap: str, *, replicas: int = 1) -> list[bytes]:
    """Makes both topics, and writes `RECORDS` records over the partitions of the inputs; returns their values."""
    client = {"bootstrap.servers": bootstrap, "log_level": 0}
    topics = [NewTopic(name, PARTITIONS, replicas) for name in (INPUTS, OUTPUTS)]
    admin = AdminClient(client)
    for future in admin.create_topics(topics).values():
        future.result(WITHIN_S)
    values = [b"%d" % number for number in range(RECORDS)]
    producer = Producer(client)
    for number, value in enumerate(values):
        producer.produce(INPUTS, value, partition=number % PARTITIONS)
    assert producer.flush(WITHIN_S) == 0
    return values


def read_all(
    bootstrap: str, isolation: str, topic: str = OUTPUTS, partitions: int = PARTITIONS
) -> list[bytes]:
    """The records of the outputs, or of another topic, up to its ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < partitions:
        one = consumer.poll(WITHIN_S)
        assert one is not None, f"{len(ended)} partitions were read to their end"
        if one.error() is None:
            found.append(one.value() or b"")
        elif one.error().code() == KafkaError._PARTITION_EOF:
            ended.add(one.partition() or 0)
        else:  # a leader is away, or another one begins
            assert one.error().retriable(), one.error()
    consumer.close()
    return found
