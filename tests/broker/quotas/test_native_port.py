"""Quotas on the native port: the same counts, for the same users and client ids."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.broker.quotas.quota_requests import Clock, alter
from tests.support.in_process import Running
from tests.support.native_client import NativeConnection
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, create_topic

BATCH = plain_batch([b"x" * 100_000]).encode()
PAUSE_MS = 300
LIMIT = len(BATCH) * 1000 // (10_000 + PAUSE_MS)
WHERE = {"topic": "t", "partition": 0}


@pytest.fixture
async def native(running: Running, kafka: RawConnection) -> AsyncIterator[NativeConnection]:
    await create_topic(kafka, "t", 1)
    connection = await NativeConnection.open(running.native_address)
    await connection.call("hello", client_id="app")
    yield connection
    await connection.close()


async def test_a_producer(kafka: RawConnection, native: NativeConnection) -> None:
    """Is answered at once, and its next message later."""
    await alter(kafka, {"producer_byte_rate": LIMIT}, user="ANONYMOUS", client_id="app")
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    answer = await native.call("produce", batch=BATCH, **WHERE)
    assert (answer["error"]["code"], answer["base_offset"]) == (0, 0)
    assert answer["throttle_time_ms"] == pytest.approx(PAUSE_MS, abs=10)
    assert "throttle_time_ms" not in await native.call("metadata")
    assert round(1000 * (loop.time() - began_at)) >= answer["throttle_time_ms"]


async def test_records_are_counted_as_batches_are(
    running: Running, kafka: RawConnection, native: NativeConnection
) -> None:
    """Includes those that the broker makes a batch of in a thread."""
    await alter(kafka, {"producer_byte_rate": LIMIT}, client_id="app")
    running.broker.quotas.clock = lambda: 1000.0
    records = [{"value": b"x" * 1000}] * 110
    answer = await native.call("produce", records=records, **WHERE)
    assert answer["throttle_time_ms"] > PAUSE_MS


@pytest.mark.slow
@pytest.mark.parametrize("raw", [False, True])
async def test_a_consumer(
    running: Running, kafka: RawConnection, native: NativeConnection, raw: bool
) -> None:
    """Gets nothing once it has had too much, and continues where it was."""
    await native.call("produce", batch=BATCH, **WHERE)
    await alter(kafka, {"consumer_byte_rate": LIMIT - 1000}, client_id="app")
    now = [1000.0]
    running.broker.quotas.clock = lambda: now[0]
    first = await native.call("fetch", offset=0, raw=raw, **WHERE)
    assert (first["next_offset"], "throttle_time_ms" in first) == (1, False)
    second = await native.call("fetch", offset=0, raw=raw, **WHERE)
    assert second["throttle_time_ms"] > PAUSE_MS
    assert (second["next_offset"], second["batches" if raw else "records"]) == (
        0,
        b"" if raw else [],
    )
    now[0] += 12
    assert (await native.call("fetch", offset=0, raw=raw, **WHERE))["next_offset"] == 1


async def test_messages_of_brokers_are_not_counted(
    running: Running, kafka: RawConnection, native: NativeConnection
) -> None:
    """Replication would stop because of a quota that is meant for clients."""
    await alter(kafka, {"request_percentage": 1e-9}, user=None)
    await native.call("hello", client_id="app")
    assert running.broker.metrics.throttled_requests_total == 0
    assert (await native.call("metadata"))["throttle_time_ms"] == 1000


async def test_topics_that_are_created(
    running: Running, kafka: RawConnection, native: NativeConnection
) -> None:
    """Counted with those of the Kafka port: one beyond is refused, and its connection is not read until the debt is paid."""
    await alter(kafka, {"controller_mutation_rate": 2.0}, user="ANONYMOUS")
    clock = running.broker.quotas.clock = Clock()
    created = await native.call("create_topic", topic="a", partitions=23)
    assert (created["error"]["code"], "throttle_time_ms" in created) == (0, False)
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    refused = await native.call("create_topic", topic="b", partitions=1)
    assert (refused["error"]["code"], refused["error"]["retriable"]) == (89, True)
    assert refused["throttle_time_ms"] == 500
    clock.now += 0.5
    exists = await native.call("create_topic", topic="a", partitions=5)
    assert round(1000 * (loop.time() - began_at)) >= 500
    assert exists["error"]["code"] == 36
    assert (await native.call("create_topic", topic="b", partitions=1))["error"]["code"] == 0
    assert running.broker.metrics.throttled_requests_total == 1


@pytest.mark.slow
async def test_a_refused_message_is_counted_too(
    kafka: RawConnection, native: NativeConnection
) -> None:
    """Whatever became of it, at once or later, as on the Kafka port."""
    await alter(kafka, {"request_percentage": 1e-9}, client_id="app")
    missing = await native.call("fetch", topic="missing", partition=0, offset=0)
    assert (missing["error"]["code"], missing["throttle_time_ms"]) == (3, 1000)
    wrong = await native.call("create_topic", topic="not a name")
    assert (wrong["error"]["code"], wrong["throttle_time_ms"]) == (17, 1000)
