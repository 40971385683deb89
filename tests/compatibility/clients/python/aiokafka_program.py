"""aiokafka as a client program; see tests/compatibility/README.md."""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError, KafkaTimeoutError

from tests.compatibility.clients.python.membership import Membership
from tests.compatibility.clients.python.program import STORED, Case, Consume, Produce, main
from tests.compatibility.clients.python.records import Record
from tests.compatibility.clients.python.security import aiokafka_settings

_PENDING_RECORDS_MAX = 5_000
_PENDING_RECORDS_LOW = 1_000
_ATTEMPT_TIMEOUT_S = 15.0
_POLL_MS = 200
_ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


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


class _Rebalances(ConsumerRebalanceListener):
    def __init__(self, run: Membership, consumer: AIOKafkaConsumer) -> None:
        self._run = run
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self._run.revoked(one.partition for one in revoked)

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        generation = self._consumer._coordinator.generation
        self._run.assigned(generation, [one.partition for one in assigned])


async def subscribe(run: Membership) -> None:
    """Reads as a member of the group, and commits after each poll."""
    options = run.options
    consumer = AIOKafkaConsumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=(_ASSIGNORS[options.assignor],),
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=options.session_timeout_ms // 10,
        max_poll_interval_ms=30_000,
        metadata_max_age_ms=5_000,
    )
    consumer.subscribe([options.topic], listener=_Rebalances(run, consumer))
    await consumer.start()
    try:
        while not run.is_over:
            found = await consumer.getmany(timeout_ms=_POLL_MS, max_records=100)
            for place, records in found.items():
                for record in records:
                    run.record(place.partition, record.offset, record.value)
            ends = {place: records[-1].offset + 1 for place, records in found.items() if records}
            if ends:
                await _commit(run, consumer, ends)
    finally:
        await consumer.stop()


async def _commit(
    run: Membership, consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]
) -> None:
    offsets = {place.partition: end for place, end in ends.items()}
    run.committing(offsets)
    try:
        await consumer.commit(ends)
    except KafkaError as error:
        run.failed(repr(error))
    else:
        run.committed(offsets)


if __name__ == "__main__":
    main("aiokafka", aiokafka.__version__, produce, consume, attempt, subscribe)
