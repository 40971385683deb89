"""aiokafka as a client program; see tests/compatibility/README.md."""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaTimeoutError

from tests.compatibility.clients.python.program import STORED, Case, Consume, Produce, main
from tests.compatibility.clients.python.records import Record
from tests.compatibility.clients.python.security import aiokafka_settings

_PENDING_RECORDS_MAX = 5_000
_PENDING_RECORDS_LOW = 1_000
_ATTEMPT_TIMEOUT_S = 15.0


async def produce(run: Produce) -> None:
    """Writes the records; aiokafka answers each with a future."""
    options = run.options
    producer = AIOKafkaProducer(
        bootstrap_servers=options.bootstrap,
        enable_idempotence=True,
        compression_type=None if options.codec == "none" else options.codec,
        linger_ms=options.linger_ms,
        request_timeout_ms=options.request_timeout_ms,
        **aiokafka_settings(options.security),
    )
    await producer.start()
    pending: set[asyncio.Future[Any]] = set()
    try:
        for wait, record in run.records():
            if wait:
                await asyncio.sleep(wait)
            await _send(run, producer, record, pending)
        while pending:
            await asyncio.wait(pending)
    finally:
        await producer.stop()


async def _send(
    run: Produce, producer: AIOKafkaProducer, record: Record, pending: set[asyncio.Future[Any]]
) -> None:
    future = await _hand_over(run, producer, record)
    pending.add(future)

    def done(answer: asyncio.Future[Any]) -> None:
        pending.discard(answer)
        if (error := answer.exception()) is not None:
            run.failed(type(error).__name__)
        else:
            run.acknowledged(record.partition, answer.result().offset, record.number)

    future.add_done_callback(done)
    if len(pending) > _PENDING_RECORDS_MAX:
        while len(pending) > _PENDING_RECORDS_LOW:
            await asyncio.wait(set(pending), return_when=asyncio.FIRST_COMPLETED)


async def _hand_over(
    run: Produce, producer: AIOKafkaProducer, record: Record
) -> asyncio.Future[Any]:
    while True:
        try:
            return await producer.send(
                run.options.topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                timestamp_ms=record.timestamp,
                headers=record.headers,
            )
        except KafkaTimeoutError:
            # Its buffer stayed full for a request timeout; the record was not taken.
            continue


async def consume(run: Consume) -> None:
    """Reads each partition from its first offset to its end."""
    options = run.options
    partitions = [TopicPartition(options.topic, p) for p in range(options.partitions)]
    consumer = AIOKafkaConsumer(
        bootstrap_servers=options.bootstrap,
        check_crcs=True,
        enable_auto_commit=False,
        **aiokafka_settings(options.security),
    )
    await consumer.start()
    try:
        consumer.assign(partitions)
        begins = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
        for partition in partitions:
            run.begin(partition.partition, begins[partition], ends[partition])
            consumer.seek(partition, begins[partition])
        while not run.is_over:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for r in records:
                    run.add(r.partition, r.offset, r.timestamp, r.key, r.value, list(r.headers))
    finally:
        await consumer.stop()


async def attempt(case: Case) -> str:
    """Starts a producer and stores one record; whatever it raises is the outcome."""
    producer = AIOKafkaProducer(
        bootstrap_servers=case.bootstrap,
        enable_idempotence=True,
        **aiokafka_settings(case.security),
    )
    try:
        await asyncio.wait_for(producer.start(), _ATTEMPT_TIMEOUT_S)
        await asyncio.wait_for(producer.send_and_wait(case.topic, b"x", partition=0), _ATTEMPT_TIMEOUT_S)
    finally:
        await producer.stop()
    return STORED


if __name__ == "__main__":
    main("aiokafka", aiokafka.__version__, produce, consume, attempt)
