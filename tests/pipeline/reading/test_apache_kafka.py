"""The reader at Apache Kafka, 3.9 and 4: the rows that librdkafka reads, and the same losses noticed."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from echoless.pipeline.reading.batch_reader import plan_job
from echoless.pipeline.reading.errors import DataLossError
from echoless.pipeline.reading.options import read_reader_options
from echoless.pipeline.reading.span_rows import read_span
from tests.pipeline.reading.written import WITHIN_S, read, write
from tests.transactions.librdkafka import transactional

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


TOPIC = "reader-test"


@pytest.fixture(params=["apache_kafka", "apache_kafka_4"])
def address(request):
    """A broker of either version, with a new topic."""
    found = request.getfixturevalue(request.param).kafka_address
    _create_again(found)
    return found


def _create_again(address):
    """Deletes the topic if it is there, and creates it; Kafka removes a topic after it has said so."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    if TOPIC in admin.list_topics(timeout=WITHIN_S).topics:
        admin.delete_topics([TOPIC])[TOPIC].result(WITHIN_S)
    until = time.monotonic() + WITHIN_S
    while TOPIC in admin.list_topics(timeout=WITHIN_S).topics:
        assert time.monotonic() < until, "Kafka keeps it"
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(WITHIN_S)


def by_librdkafka(address, isolation):
    """Partition, offset, key, value, timestamp and headers of all records."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(2)])
    found, ended = [], 0
    while ended < 2:
        message = consumer.poll(WITHIN_S)
        assert message is not None
        if message.error() is not None:
            ended += 1
            continue
        found.append(
            (
                *(message.partition(), message.offset(), message.key(), message.value()),
                *(message.timestamp()[1], message.headers()),
            )
        )
    consumer.close()
    return sorted(found, key=lambda one: one[:2])


def test_rows_are_those_of_librdkafka(address):
    """All codecs, headers, nulls, transactions; both isolation levels."""
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        write(address, number % 2, 150, first=150 * number, topic=TOPIC, codec=codec)
    producer = transactional(address, "reader-test")
    for number in range(4):
        producer.begin_transaction()
        for index in range(6):
            producer.produce(TOPIC, f"{number}-{index}", partition=1)
        assert producer.flush(WITHIN_S) == 0
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(WITHIN_S)
    counts = []
    for isolation in ("read_uncommitted", "read_committed"):
        rows = read(
            address, subscribe=TOPIC, includeHeaders="true", kafka__isolation__level=isolation
        )
        found = [
            (
                *(row["partition"], row["offset"], row["key"], row["value"]),
                round(row["timestamp"].timestamp() * 1000),
                [(one["key"], one["value"]) for one in row["headers"]] if row["headers"] else None,
            )
            for row in rows
        ]
        assert found == by_librdkafka(address, isolation)
        counts.append(len(found))
    assert counts == [774, 762]


def test_losses_are_noticed(address, monkeypatch):
    """Deleted records, and a topic that was created again."""
    monkeypatch.setattr("echoless.pipeline.reading.partition_log._GONE_S", 0.1)
    write(address, 0, 50, topic=TOPIC)
    options = read_reader_options(
        {"kafka.bootstrap.servers": address, "assign": f'{{"{TOPIC}": [0]}}'}, is_stream=False
    )
    (span,) = plan_job(options)
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for deleted in admin.delete_records([TopicPartition(TOPIC, 0, 20)]).values():
        deleted.result(WITHIN_S)
    with pytest.raises(DataLossError, match="offsets 0 to 20 are gone: the log begins at 20"):
        list(read_span(options, span))
    (left,) = read_span(options, span._replace(start=20))
    assert left["offset"].to_pylist() == list(range(20, 50))
    _create_again(address)
    with pytest.raises(DataLossError, match="was deleted and created again"):
        list(read_span(options, span))
