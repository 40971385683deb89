"""Records that the reader's tests write, by librdkafka, and what the reader makes of a topic without Spark."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Producer

from echoless.pipeline.reading.batch_reader import plan_job
from echoless.pipeline.reading.options import read_reader_options
from echoless.pipeline.reading.span_rows import read_span

TOPIC = "orders"
BASE_MS = time.time_ns() // 1_000_000 - 600_000
"""Timestamp of the first record: ten minutes ago, since retention takes older ones away."""
WITHIN_S = 60.0


def write(
    address: str,
    partition: int,
    count: int,
    *,
    first: int = 0,
    topic: str = TOPIC,
    codec: str = "none",
) -> None:
    """Writes records of every kind: null keys and values, none to three headers, rising timestamps."""
    producer = Producer(
        {"bootstrap.servers": address, "compression.type": codec, "linger.ms": 20, "log_level": 0}
    )
    for number in range(first, first + count):
        producer.produce(
            topic,
            None if number % 7 == 0 else b"v" * (number % 300) + b"%d" % number,
            key=None if number % 5 == 0 else b"k%d" % number,
            partition=partition,
            headers=[(f"h{n}", None if n == 1 else b"x" * n) for n in range(number % 4)],
            timestamp=BASE_MS + number,
        )
    assert producer.flush(WITHIN_S) == 0


def read(address: str, **given: str) -> list[dict[str, Any]]:
    """All rows of a job with these options, in the order of its tasks; `__` is a dot."""
    options = {"subscribe": TOPIC} if not {"assign", "subscribePattern"} & given.keys() else {}
    options |= {name.replace("__", "."): text for name, text in given.items()}
    parsed = read_reader_options({"kafka.bootstrap.servers": address, **options}, is_stream=False)
    rows: list[dict[str, Any]] = []
    for span in plan_job(parsed):
        for batch in read_span(parsed, span):
            batch.validate(full=True)
            rows += batch.to_pylist()
    return rows
