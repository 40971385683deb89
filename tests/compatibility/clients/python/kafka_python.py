"""kafka-python as a client program; see tests/compatibility/README.md."""

from __future__ import annotations

import threading
import time
from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.compatibility.clients.python.program import STORED, Case, Consume, Produce, main
from tests.compatibility.clients.python.records import Record
from tests.compatibility.clients.python.security import kafka_python_settings

_PENDING_RECORDS_MAX = 5_000
_CLOSE_TIMEOUT_S = 60
_ATTEMPT_TIMEOUT_MS = 15_000


def produce(run: Produce) -> None:
    """Writes the records; callbacks come from the client's own thread."""
    options = run.options
    producer = KafkaProducer(
        bootstrap_servers=options.bootstrap,
        enable_idempotence=True,
        compression_type=None if options.codec == "none" else options.codec,
        linger_ms=options.linger_ms,
        request_timeout_ms=options.request_timeout_ms,
        delivery_timeout_ms=options.delivery_timeout_ms,
        **kafka_python_settings(options.security),
    )
    room = threading.Semaphore(_PENDING_RECORDS_MAX)
    for wait, record in run.records():
        time.sleep(wait)
        room.acquire()
        _send(run, producer, record, room)
    producer.flush()
    producer.close(timeout=_CLOSE_TIMEOUT_S)


def _send(run: Produce, producer: KafkaProducer, record: Record, room: threading.Semaphore) -> None:
    def acknowledged(metadata: Any) -> None:
        room.release()
        run.acknowledged(record.partition, metadata.offset, record.number)

    def failed(error: BaseException) -> None:
        room.release()
        run.failed(type(error).__name__)

    future = producer.send(
        run.options.topic,
        value=record.value,
        key=record.key,
        headers=record.headers,
        partition=record.partition,
        timestamp_ms=record.timestamp,
    )
    future.add_callback(acknowledged)
    future.add_errback(failed)


def consume(run: Consume) -> None:
    """Reads each partition from its first offset to its end."""
    options = run.options
    partitions = [TopicPartition(options.topic, p) for p in range(options.partitions)]
    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap,
        check_crcs=True,
        enable_auto_commit=False,
        **kafka_python_settings(options.security),
    )
    consumer.assign(partitions)
    begins = consumer.beginning_offsets(partitions)
    ends = consumer.end_offsets(partitions)
    for partition in partitions:
        run.begin(partition.partition, begins[partition], ends[partition])
        consumer.seek(partition, begins[partition])
    while not run.is_over:
        for records in consumer.poll(timeout_ms=200).values():
            for r in records:
                run.add(r.partition, r.offset, r.timestamp, r.key, r.value, list(r.headers))
    consumer.close()


def attempt(case: Case) -> str:
    """Starts a producer and stores one record; whatever it raises is the outcome."""
    producer = KafkaProducer(
        bootstrap_servers=case.bootstrap,
        enable_idempotence=True,
        bootstrap_timeout_ms=_ATTEMPT_TIMEOUT_MS,
        max_block_ms=_ATTEMPT_TIMEOUT_MS,
        **kafka_python_settings(case.security),
    )
    try:
        producer.send(case.topic, b"x", partition=0).get(timeout=_ATTEMPT_TIMEOUT_MS / 1000)
    finally:
        producer.close(timeout=0)
    return STORED


if __name__ == "__main__":
    main("kafka-python", kafka.__version__, produce, consume, attempt, null_headers=False)
