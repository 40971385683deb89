"""librdkafka under a quota: it is told, it waits, and everything is stored once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import Producer, ThrottleEvent

from tests.broker.quotas.quota_requests import Clock, alter
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, create_topic

RECORDS, SIZE = 24, 100_000
LIMIT = RECORDS * SIZE // 11
"""The records are so much more than ten seconds' worth that the last request causes a pause of about a second."""


def produce(address: str, on_throttle: Callable[[ThrottleEvent], None]) -> int:
    """Returns how many records were acknowledged."""
    acknowledged = 0

    def delivered(error: object, _message: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    producer = Producer(
        {
            "bootstrap.servers": address,
            "client.id": "app",
            "enable.idempotence": True,
            "throttle_cb": on_throttle,
        }
    )
    for _ in range(RECORDS):
        producer.produce("t", b"x" * SIZE, on_delivery=delivered)
    producer.flush(60)
    producer.poll(1)
    return acknowledged


@pytest.mark.slow
async def test_an_idempotent_producer_waits(running: Running, kafka: RawConnection) -> None:
    """By its own throttle event, not by an error or a resend."""
    await create_topic(kafka, "t", 1)
    await alter(kafka, {"producer_byte_rate": LIMIT}, client_id="app")
    running.broker.quotas.clock = Clock()  # so that a slow client exceeds the rate as well
    events: list[ThrottleEvent] = []
    assert await asyncio.to_thread(produce, running.kafka_address, events.append) == RECORDS
    assert any(event.throttle_time > 0 for event in events)
    metrics = running.broker.metrics
    assert metrics.throttled_requests_total > 0
    assert (metrics.records_appended_total, metrics.duplicates_total) == (RECORDS, 0)
