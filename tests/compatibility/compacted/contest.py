"""The same random compacted topic in Echoless and in Apache Kafka, read to the end by every family of clients.

The promise: each gets exactly what the naive model says, the last record of each key and the whole tail. Kafka may keep
tombstones for longer; that its own log is so otherwise shows that the model is right.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from echoless.protocol.errors import ErrorCode
from echoless.protocol.records import Record, iterate_records
from tests.broker.test_compaction import cleaned, connected
from tests.compatibility.clients.python.records import canonical
from tests.compatibility.compacted.shape import SEGMENT_MS, Shape, random_shape
from tests.compatibility.programs import (
    AIOKAFKA,
    FRANZ_GO,
    JAVA,
    KAFKA_GO,
    KAFKA_PYTHON,
    KAFKAJS,
    LIBRDKAFKA,
    SARAMA,
    Program,
    ProgramError,
)
from tests.support.apache_kafka import ApacheKafka
from tests.support.in_process import Running, in_process
from tests.support.raw_client import RawConnection, create_topic, fetch_log
from tests.support.raw_produce import PartitionData

FAMILIES: Final = (
    LIBRDKAFKA,
    JAVA[0],
    FRANZ_GO,
    SARAMA,
    KAFKA_GO,
    KAFKAJS,
    AIOKAFKA,
    KAFKA_PYTHON,
)
KAFKA_SETTINGS: Final = {"log.cleaner.backoff.ms": "100"}
_SEGMENT_BYTES: Final = (2_000, 20_000, 200_000)
_DAY_MS: Final = 86_400_000
_CLEANED_WITHIN_S: Final = 120
_Log = Mapping[int, Sequence[str]]
"""By partition: offset and canonical bytes of each record."""


@dataclass(slots=True)
class Findings:
    """Counts, and every breach of the promise in words."""

    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class _Topic:
    """One topic with a shape in each partition."""

    name: str
    shapes: Sequence[Shape]
    configs: Mapping[str, str]

    def left(self, reader: Program | None = None, *, with_tombstones: bool) -> dict[int, list[str]]:
        """The records that the model leaves, as this reader writes them."""
        found = {}
        for partition, shape in enumerate(self.shapes):
            records: Iterable[Record] = shape.left(with_tombstones=with_tombstones)
            if reader is KAFKA_GO:
                records = map(_without_empty, records)
            found[partition] = [_line(record) for record in records]
        return found


def _topic(seed: int, number: int, shapes: int) -> _Topic:
    rng = random.Random(f"{seed} topic {number}")
    segment_bytes = rng.choice(_SEGMENT_BYTES)
    configs = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "segment.bytes": str(segment_bytes),
        "segment.ms": str(SEGMENT_MS),
        "delete.retention.ms": str(rng.choice((0, _DAY_MS))),
    }
    now_ms = int(time.time() * 1000)
    made = [
        random_shape(seed, number * shapes + one, segment_bytes, now_ms) for one in range(shapes)
    ]
    return _Topic(f"compacted-{seed}-{number}", made, configs)


async def contest(
    kafka: ApacheKafka,
    seed: int,
    number: int,
    directory: Path,
    *,
    shapes: int = 4,
    readers_of_kafka: Sequence[Program] = (JAVA[0],),
) -> Findings:
    """Fill the topic of that number in both, and have it read."""
    topic = _topic(seed, number, shapes)
    findings = Findings()
    async with in_process(directory / "broker") as running:
        await _fill(running, topic)
        has_tombstones = topic.configs["delete.retention.ms"] != "0"
        for program in FAMILIES:
            expected = topic.left(program, with_tombstones=has_tombstones)
            found = await asyncio.to_thread(_read, program, running.kafka_address, topic, directory)
            findings.problems += [
                f"{program.name}, topic {number} of seed {seed}: {problem}"
                for problem in _differences(topic, found, expected, expected)
            ]
    await _fill_kafka(kafka, topic)
    for program in readers_of_kafka:
        least = topic.left(program, with_tombstones=False)
        most = topic.left(program, with_tombstones=True)
        found = await asyncio.to_thread(_read, program, kafka.address, topic, directory)
        wrong = _differences(topic, found, least, most)
        findings.counts["readings of Kafka's own log that do not end well"] += bool(wrong)
        if program is JAVA[0]:
            findings.problems += [f"Kafka's own log, read by Java: {problem}" for problem in wrong]
    findings.counts["topics"] += 1
    findings.counts["shapes"] += shapes
    findings.counts["records sent"] += sum(len(shape.records) for shape in topic.shapes)
    left = topic.left(with_tombstones=has_tombstones)
    findings.counts["records left"] += sum(map(len, left.values()))
    return findings


async def _fill(running: Running, topic: _Topic) -> None:
    """Fill our topic in two parts, each of which is cleaned, and again until nothing changes any more."""
    async with connected(running) as kafka:
        await create_topic(kafka, topic.name, len(topic.shapes), topic.configs)
        for part in (0, 1):
            for partition, shape in enumerate(topic.shapes):
                middle = len(shape.head) // 2
                batches = shape.head[middle:] if part else shape.head[:middle]
                await _produce(kafka, topic.name, partition, batches)
            await cleaned(running, topic.name)
        while await cleaned(running, topic.name):
            pass
        for partition, shape in enumerate(topic.shapes):
            await _produce(kafka, topic.name, partition, shape.tail)


async def _fill_kafka(kafka: ApacheKafka, topic: _Topic) -> None:
    """Fill Kafka's topic, and wait until its cleaner has been over all but the tail."""
    connection = await RawConnection.open(kafka.address)
    try:
        await create_topic(connection, topic.name, len(topic.shapes), topic.configs)
        for partition, shape in enumerate(topic.shapes):
            await _produce(connection, topic.name, partition, [*shape.head, *shape.tail])
        most = topic.left(with_tombstones=True)
        async with asyncio.timeout(_CLEANED_WITHIN_S):
            for partition in range(len(topic.shapes)):
                allowed = {*most[partition]}
                while not {*await _stored(connection, topic.name, partition)} <= allowed:
                    pass
    finally:
        await connection.close()


async def _produce(
    connection: RawConnection, topic: str, partition: int, batches: Sequence[bytes]
) -> None:
    for batch in batches:
        (answer,) = await connection.produce(9, -1, [PartitionData(topic, partition, batch)])
        assert answer.error == ErrorCode.NONE


async def _stored(connection: RawConnection, topic: str, partition: int) -> list[str]:
    batches = await fetch_log(connection, topic, partition)
    return [_line(record) for batch in batches for record in iterate_records(batch.data)]


def _without_empty(record: Record) -> Record:
    """The record as kafka-go shows it, which takes what is empty for null."""
    headers = [(name, value or None) for name, value in record.headers]
    return record._replace(key=record.key or None, value=record.value or None, headers=headers)


def _line(record: Record) -> str:
    content = canonical(record.timestamp, record.key, record.value, list(record.headers))
    return f"{record.offset} {content.hex()}"


def _read(
    program: Program, address: str, topic: _Topic, directory: Path
) -> tuple[dict[int, list[str]], str]:
    """The lines that the program got, and what it said if it failed."""
    lines, said = directory / f"{program.name}-{address.rpartition(':')[2]}", ""
    try:
        program.run(
            "consume",
            bootstrap=address,
            topic=topic.name,
            partitions=len(topic.shapes),
            records=lines,
        )
    except ProgramError as error:
        said = str(error)[-300:]
    found: dict[int, list[str]] = {partition: [] for partition in range(len(topic.shapes))}
    for line in lines.read_text().splitlines():
        partition, offset, _, content = line.split(" ")
        found[int(partition)].append(f"{offset} {content}")
    return found, said


def _differences(topic: _Topic, read: tuple[_Log, str], least: _Log, most: _Log) -> list[str]:
    """Each partition where what was read lacks something of `least`, or is not in `most`, in its order."""
    found, said = read
    problems = []
    for partition, shape in enumerate(topic.shapes):
        lines = found[partition]
        allowed = [line for line in most[partition] if line in {*lines}]
        missing = [line for line in least[partition] if line not in {*lines}]
        if missing or lines != allowed:
            other = next((line for line in lines if line not in {*most[partition]}), None)
            problems.append(
                f"partition {partition} ({shape.about}): {len(lines)} records, {len(missing)} missing, "
                f"the first is {missing[:1]}; one too much: {other}; {said}"
            )
    return problems
