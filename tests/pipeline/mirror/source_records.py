"""Records of every shape for a source: null keys, null values, headers, given timestamps."""

from __future__ import annotations

import time

PARTITIONS = 3


def produce(address: str, topic: str, count: int, *, first: int = 0) -> None:
    """Sends records `first` to `first + count`, partition by turns, with librdkafka."""
    from confluent_kafka import Producer

    begun_ms = int(time.time() * 1000) - 3_600_000
    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
            "compression.type": "lz4",
        }
    )
    for number in range(first, first + count):
        producer.produce(
            topic,
            partition=number % PARTITIONS,
            key=None if number % 5 else b"key %d" % number,
            value=None if number % 11 == 0 else b"value %d" % number,
            headers=[("one", b"1"), ("none", None)] if number % 97 == 0 else None,
            timestamp=begun_ms + number,
        )
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
