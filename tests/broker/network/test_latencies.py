"""How long requests take: counted by API, from taking them off the connection to writing the answer."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.config.names import LogFlush
from echoless.broker.handlers import api_versions, fetch, produce
from echoless.broker.metrics import LATENCY_BOUNDS_S
from echoless.protocol.errors import ErrorCode
from tests.support.in_process import Running, in_process
from tests.support.native_client import NativeConnection
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, create_topic, message, nested
from tests.support.raw_produce import PartitionData

FETCH_VERSION = 12
WAIT_MS = 60
REQUESTS = 5


def counted(running: Running) -> Mapping[int, int]:
    """Requests in the histogram, by the key of their API."""
    latencies = running.broker.metrics.latencies
    return {key: int(sum(row[:-1])) for key, row in latencies.items()}


def fetch_request() -> Any:
    """A fetch that waits at the end of t-0 for as long as it may."""
    partition = nested("fetch", FETCH_VERSION, "FetchPartition")(
        partition=0, fetch_offset=0, partition_max_bytes=1000
    )
    topic = nested("fetch", FETCH_VERSION, "FetchTopic")(topic="t", partitions=(partition,))
    return message("fetch", FETCH_VERSION, "Request")(
        max_wait=datetime.timedelta(milliseconds=WAIT_MS),
        min_bytes=1,
        topics=(topic,),
        forgotten_topics_data=(),
    )


@pytest.mark.parametrize("flush", LogFlush)
@pytest.mark.parametrize("acks", [-1, 1, 0])
async def test_each_request_is_counted_once(tmp_path: Path, flush: LogFlush, acks: int) -> None:
    """Answered at once, after a flush, together with others, or not at all."""
    async with in_process(tmp_path, log_flush=flush) as running:
        kafka = await RawConnection.open(running.kafka_address)
        await create_topic(kafka, "t", 1)
        for _ in range(REQUESTS):
            kafka.send_produce(9, acks, [PartitionData("t", 0, plain_batch([b"x"]).encode())])
        if acks:
            for _ in range(REQUESTS):
                (answer,) = await kafka.receive_produce(9)
                assert answer.error == ErrorCode.NONE
        await kafka.call("api_versions", 0)
        assert counted(running)[produce.API.key] == REQUESTS
        assert counted(running)[api_versions.API.key] == 1
        assert all(row[-1] > 0 for row in running.broker.metrics.latencies.values())
        await kafka.close()


async def test_the_wait_for_data_counts(running: Running, kafka: RawConnection) -> None:
    """A fetch at the end of the log takes at least as long as it waits."""
    await create_topic(kafka, "t", 1)
    kafka.send_request(fetch_request())
    await kafka.receive()
    *buckets, took_s = running.broker.metrics.latencies[fetch.API.key]
    shorter = sum(1 for bound in LATENCY_BOUNDS_S if bound * 1000 < WAIT_MS - 10)
    assert sum(buckets[:shorter]) == 0
    assert sum(buckets) == 1
    assert took_s * 1000 > WAIT_MS - 10


async def test_an_answer_behind_another_counts_until_it_is_written(
    running: Running, kafka: RawConnection
) -> None:
    """ApiVersions takes no time, but the fetch before it does."""
    await create_topic(kafka, "t", 1)
    kafka.send_request(fetch_request())
    kafka.send_request(message("api_versions", 0, "Request")())
    await kafka.receive()
    await kafka.receive()
    assert running.broker.metrics.latencies[api_versions.API.key][-1] * 1000 > WAIT_MS / 2


async def test_the_native_port_counts_bytes_only(running: Running) -> None:
    """Its messages have no API key."""
    before = running.broker.metrics.received_bytes_total
    native = await NativeConnection.open(running.native_address)
    native.send(type="produce", topic="none", partition=0, batch=b"")
    await native.receive()
    await native.close()
    metrics = running.broker.metrics
    assert metrics.received_bytes_total > before
    assert metrics.sent_bytes_total > 0
    assert not metrics.latencies
