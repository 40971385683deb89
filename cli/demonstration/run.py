# mypy: disable-error-code="no-untyped-call"
# aiokafka has no annotations.
"""One run of the demo: a real producer sends numbered records, and the stored ones are counted.

Record `n` holds the number `n`, and goes to partition `n % partitions`, so the stored numbers of a
partition show everything: a number twice is a duplicate, an acknowledged one that is missing is
lost, one after a greater one is out of order. The producer and the consumer are aiokafka's, not
ours. Imports aiokafka: 200 ms.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

PARTITIONS: Final = 3
_WAVE: Final = 30
"""Records that are sent together; the next wave waits for them."""
_RETRY_BACKOFF_MS: Final = 20
_READ_TIMEOUT_S: Final = 10


@dataclass(slots=True, kw_only=True)
class DemoResult:
    """The outcome of one run, in records."""

    idempotence: bool
    sent: int
    acknowledged: int
    stored: int
    duplicates: int
    lost: int
    out_of_order: int
    acknowledgements_lost: int = 0
    """Answers that never reached the producer; filled in by the caller, which loses them."""


async def run(
    bootstrap_servers: str,
    topic: str,
    count: int,
    *,
    idempotence: bool,
    advance: Callable[[int], None],
) -> DemoResult:
    """Sends `count` records to `topic`; `advance` is notified of the progress."""
    # Cut connections are the point here; aiokafka would log every one of them.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    acknowledged = await _produce(
        bootstrap_servers, topic, count, idempotence=idempotence, advance=advance
    )
    stored = await _consume(bootstrap_servers, topic)
    return judge(idempotence, count, acknowledged, stored)


def judge(
    idempotence: bool,
    sent: int,
    acknowledged: set[int],
    stored: dict[int, list[int]],
) -> DemoResult:
    """Compares the acknowledged numbers with those that each partition holds."""
    numbers = [number for partition in stored.values() for number in partition]
    return DemoResult(
        idempotence=idempotence,
        sent=sent,
        acknowledged=len(acknowledged),
        stored=len(numbers),
        duplicates=len(numbers) - len(set(numbers)),
        lost=len(acknowledged - set(numbers)),
        out_of_order=sum(_count_out_of_order(partition) for partition in stored.values()),
    )


def _count_out_of_order(numbers: Iterable[int]) -> int:
    """Numbers after a greater one; repeats count as duplicates only."""
    seen: set[int] = set()
    greatest, count = -1, 0
    for number in numbers:
        if number not in seen and number < greatest:
            count += 1
        seen.add(number)
        greatest = max(greatest, number)
    return count


async def _produce(
    address: str, topic: str, count: int, *, idempotence: bool, advance: Callable[[int], None]
) -> set[int]:
    """Sends; returns the acknowledged numbers."""
    producer = AIOKafkaProducer(
        bootstrap_servers=address,
        acks="all",
        enable_idempotence=idempotence,
        retry_backoff_ms=_RETRY_BACKOFF_MS,
    )
    acknowledged: set[int] = set()
    await producer.start()
    try:
        for first in range(0, count, _WAVE):
            wave = range(first, min(first + _WAVE, count))
            futures = {
                number: await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
                for number in wave
            }
            await asyncio.wait(futures.values())
            acknowledged |= {n for n, future in futures.items() if future.exception() is None}
            advance(len(wave))
    finally:
        await producer.stop()
    return acknowledged


async def _consume(address: str, topic: str) -> dict[int, list[int]]:
    """The numbers that each partition holds, in order."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address, auto_offset_reset="earliest", enable_auto_commit=False
    )
    partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    stored: defaultdict[int, list[int]] = defaultdict(list)
    await consumer.start()
    try:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        async with asyncio.timeout(_READ_TIMEOUT_S):
            while any([await consumer.position(p) < end for p, end in ends.items()]):
                for partition, records in (await consumer.getmany(timeout_ms=100)).items():
                    stored[partition.partition] += [int(record.value or b"") for record in records]
    finally:
        await consumer.stop()
    return stored


DemoError = KafkaError
"""Raised if the producer or the consumer cannot continue."""
