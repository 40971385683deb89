"""Batches that were encoded elsewhere, sent by both producers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa

from echoless.client.async_producer import AsyncProducer
from echoless.client.column_batch import ColumnBatches
from echoless.client.columns import columns
from echoless.client.producer import Producer
from echoless.client.settings import Settings
from echoless.protocol.record_batch import Codec
from tests.support.in_process import in_process
from tests.support.stored_values import read_stored_values

TIME = 1_795_000_000_000


def ready(values, settings):
    """The batches that the values make."""
    rows = columns(
        pa.nulls(len(values)), pa.array(values), pa.array(range(TIME, TIME + len(values)))
    )
    batches = ColumnBatches(settings)
    return batches.add(rows) + batches.finish()


async def test_ready_batches_are_numbered_as_records_are(tmp_path: Path) -> None:
    """A run that sends records is repeated with columns, cut elsewhere: nothing is stored twice."""
    values = [b"%d" % number for number in range(9)]
    async with in_process(tmp_path) as running:
        async with AsyncProducer(running.kafka_address) as producer:
            saved = producer.state()
            for number, value in enumerate(values[:5]):
                await producer.send("t", value, partition=0, timestamp_ms=TIME + number)
        settings = Settings(batch_records_max=2, compression=Codec.ZSTD)
        async with AsyncProducer.resume(saved.to_json(), running.kafka_address) as producer:
            found = []
            for batch in ready(values, settings):
                found += await producer.send_batch("t", 0, batch)
            assert [(one.offset, one.sequence) for one in found[-4:]] == [
                (n, n) for n in range(5, 9)
            ]
            assert [one.is_duplicate for one in found[-3:]] == [False] * 3
        assert await _values(running) == values


async def test_ready_batch_above_the_topics_limit_is_divided(tmp_path: Path) -> None:
    """Its records are taken out of it, and every one has its acknowledgement."""
    async with (
        in_process(tmp_path, message_max_bytes=1000) as running,
        AsyncProducer(running.kafka_address) as producer,
    ):
        values = [b"%d" % number + b"x" * 300 for number in range(8)]
        (batch,) = ready(values, Settings(compression=Codec.NONE))
        found = await producer.send_batch("t", 0, batch)
        assert len(found.batches) == 4
        assert [(one.offset, one.sequence) for one in found] == [(n, n) for n in range(8)]
        assert await _values(running) == values


def test_blocking_producer_takes_them_too(echoless):
    """Their size counts against the buffer, too."""
    settings = Settings(batch_records_max=10, buffer_bytes_max=1000)
    values = [b"%d" % number for number in range(1000)]
    with Producer(echoless.kafka_address, settings) as producer:
        producer.send("t", b"before", partition=0)
        for batch in ready(values, settings):
            outcome = producer.send_batch("t", 0, batch)
            assert producer._outstanding_bytes < 1000 + batch.size
        assert outcome.result(10)[9].offset == 1000
    assert read_stored_values(echoless.kafka_address, "t", 1) == [[b"before", *values]]


async def _values(running):
    (values,) = await asyncio.to_thread(read_stored_values, running.kafka_address, "t", 1)
    return values
