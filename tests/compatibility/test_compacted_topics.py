"""Clients of all families read compacted topics to their ends.

Three shapes, filled from a seed: a hot key in full segments; a key that hundreds of producers write once
each, whose batches stay without records; random keys, tombstones and codecs. Clients differ in what they make
of an answer without a record: kafkajs stands still, librdkafka takes the batch for larger than its limit.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from pathlib import Path

import pytest

from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import Codec
from tests.broker.test_compaction import cleaned, connected
from tests.compatibility.programs import KAFKAJS, READERS
from tests.storage.compaction.keyed_log import Pair, batches_of, keyed_batch, records_in
from tests.support.in_process import Running, in_process
from tests.support.raw_client import RawConnection, create_topic
from tests.support.raw_produce import PartitionData

pytestmark = [pytest.mark.clients, pytest.mark.slow]

_SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "segment.bytes": "20000",
    "delete.retention.ms": "0",
}
_SHAPES = 3
_PRODUCERS = 700
"""More than the empty batches that a fetch passes in one step."""
_WAIT_S = 120
_CODECS = (Codec.NONE, Codec.GZIP)
"""kafkajs reads no other without a library."""


def _hot_key(_: random.Random) -> list[bytes]:
    return [keyed_batch([(b"hot", b"v" * 5000)]) for _ in range(120)]


def _many_producers(rng: random.Random) -> list[bytes]:
    first = rng.randrange(1, 1000) * 1000
    return [
        keyed_batch([(b"hot", b"v")], producer_id=first + number) for number in range(_PRODUCERS)
    ]


def _mixed(rng: random.Random) -> list[bytes]:
    """Batches of any size, with and without a producer (each of which writes a few in a row)."""
    batches, sequence, producer_id = [], 0, -1
    for _ in range(300):
        if rng.random() < 0.2:
            sequence, producer_id = 0, rng.choice([-1, rng.randrange(10**6, 10**9)])
        pairs: list[Pair] = [
            (b"%d" % rng.randrange(8), rng.choice([None, b"v", b"v" * rng.randrange(2000)]))
            for _ in range(rng.randint(1, 5))
        ]
        batches.append(
            keyed_batch(
                pairs, producer_id=producer_id, sequence=sequence, codec=rng.choice(_CODECS)
            )
        )
        sequence += len(pairs)
    return batches


async def _fill(running: Running, kafka: RawConnection, topic: str, seed: int) -> None:
    """Two passes over each shape, and a record at the end of each partition."""
    rng = random.Random(seed)
    await create_topic(kafka, topic, _SHAPES, _SETTINGS)
    for end in (b"middle", b"end"):
        for partition, shape in enumerate((_hot_key, _many_producers, _mixed)):
            for batch in [*shape(rng), keyed_batch([(end, b"v")])]:
                (answer,) = await kafka.produce(9, -1, [PartitionData(topic, partition, batch)])
                assert answer.error == ErrorCode.NONE
        assert await cleaned(running, topic) == _SHAPES
    assert await cleaned(running, topic) == 1, (
        "the last tombstones go, and nothing changes any more"
    )


def _expected(running: Running, topic: str) -> dict[int, list[int]]:
    """The offsets of the records in each partition."""
    found = {}
    for partition in range(_SHAPES):
        log = running.broker.replicas.held[topic, partition].log
        found[partition] = [record.offset for record in records_in(log)]
    return found


def _read_all(address: str, topic: str, directory: Path) -> dict[str, dict[int, list[int]]]:
    """The offsets that each program read."""
    found = {}
    for program in READERS:
        lines = directory / program.name
        program.run("consume", bootstrap=address, topic=topic, partitions=_SHAPES, records=lines)
        found[program.name] = _offsets(lines.read_text(), 0)
    return found


def _offsets(text: str, first: int) -> dict[int, list[int]]:
    """The offsets by partition, which are the fields `first` and the next one of each line."""
    found: dict[int, list[int]] = {partition: [] for partition in range(_SHAPES)}
    for line in text.splitlines():
        partition, offset = line.split(" ")[first : first + 2]
        found[int(partition)].append(int(offset))
    return found


def _read_as_member(
    address: str, topic: str, directory: Path, expected: dict[int, list[int]]
) -> dict[int, list[int]]:
    """The offsets that kafkajs has read once it has all that is expected, or has taken too long."""
    log = directory / "kafkajs"
    log.touch()
    process = KAFKAJS.start(
        "subscribe",
        bootstrap=address,
        topic=topic,
        group="g",
        log=log,
        session_timeout_ms=10_000,
    )
    found: dict[int, list[int]] = {}
    try:
        deadline = time.monotonic() + _WAIT_S
        while found != expected and time.monotonic() < deadline:
            time.sleep(0.1)
            records = [
                line for line in log.read_text().splitlines(keepends=True) if " record " in line
            ]
            found = _offsets("".join(line for line in records if line.endswith("\n")), 2)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=_WAIT_S)
    return found


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_client_reads_a_compacted_topic_to_its_end(tmp_path: Path, seed: int) -> None:
    """Each gets exactly the records that compaction has left, in order."""
    async with in_process(tmp_path / "broker") as running, connected(running) as kafka:
        await _fill(running, kafka, "t", seed)
        hundreds = batches_of(running.broker.replicas.held["t", 1].log)
        assert sum(not header.record_count for header, _ in hundreds) > _PRODUCERS
        expected = _expected(running, "t")
        read = await asyncio.to_thread(_read_all, running.kafka_address, "t", tmp_path)
        assert read == dict.fromkeys(read, expected)
        member = _read_as_member, running.kafka_address, "t", tmp_path, expected
        assert await asyncio.to_thread(*member) == expected
