"""The cleaners of Echoless and Apache Kafka 3.9 at the same topics, and what a producer notices of them.

*cleaner*: MB of closed segments by second, from the change of a topic's ratio to the end of its pass, with up to
0.2 s until the cleaner looks; nothing else is asked of the broker. And by the processor time of the broker and its
processes, which says more on a machine that others use.
*produce*: the time from a 1 KB batch to its acknowledgement (`acks=all`, one at a time, every 2 ms) while the broker
cleans another topic, six seconds at most, and just before.

Brokers take turns. Called by `compaction.py`.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from benchmarks.many_partitions import processor_s
from benchmarks.versus_kafka import KAFKA_JVM
from echoless.protocol.records import Record, build_batch
from tests.support.apache_kafka import ApacheKafka
from tests.support.echoless import Echoless
from tests.support.raw_client import RawConnection, create_topic
from tests.support.raw_produce import PartitionData

MEGABYTE = 1_000_000
KEYS = 50_000
VALUE_BYTES = 100
RECORDS = 100
"""Records of a batch of the compacted topic."""
PACE_S = 0.002
SECONDS = 6.0
CHECKPOINT_S = 12.0
"""The longest time until what was written is below Echoless's recovery point on disk."""
PASS_S = 120.0
CLEANER = {"backoff.ms": "200", "dedupe.buffer.size": str(64 << 20)}
TOPIC = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "1",
    "segment.bytes": str(8 << 20),
}


@dataclass
class Subject:
    """A broker, and what was measured of it."""

    name: str
    address: str
    data_dir: Path
    pid: int
    passes_of: Callable[[str], int]
    """How often the cleaner has come to the end of a pass, by the name of the topic that it is asked to clean."""
    speeds: list[float] = field(default_factory=list)
    processor_speeds: list[float] = field(default_factory=list)
    speeds_beside: list[float] = field(default_factory=list)
    """Beside the producer."""
    ratios: list[float] = field(default_factory=list)


def keyed_batch(rng: random.Random) -> bytes:
    now_ms = int(time.time() * 1000)
    return build_batch(
        [
            Record(0, now_ms, b"key-%08d" % rng.randrange(KEYS), rng.randbytes(VALUE_BYTES))
            for _ in range(RECORDS)
        ]
    )


async def measure_brokers(size: int, rounds: int, *, has_kafka: bool) -> None:
    """Prints speeds and percentiles, round by round, and their medians."""
    rng = random.Random(9)
    batches = [keyed_batch(rng)]
    batches += [keyed_batch(rng) for _ in range(size // len(batches[0]))]
    with ExitStack() as stack:
        subjects = [stack.enter_context(_echoless())]
        if has_kafka:
            subjects.append(stack.enter_context(_kafka()))
        for subject in subjects:
            await _fill(subject, batches, rounds)
        await asyncio.sleep(CHECKPOINT_S)
        for number in range(rounds):
            for subject in subjects:
                await _clean_alone(subject, f"alone-{number}")
                await _clean_beside_a_producer(subject, f"beside-{number}")
    for subject in subjects:
        print(
            f"{subject.name}: cleaner {statistics.median(subject.speeds):.1f} MB/s, "
            f"{statistics.median(subject.processor_speeds):.1f} by processor time, "
            f"{statistics.median(subject.speeds_beside):.1f} beside the producer; produce p99 while cleaning / "
            f"p99 without {statistics.median(subject.ratios):.2f}; medians of {rounds}"
        )


@contextmanager
def _echoless() -> Iterator[Subject]:
    settings = {f"log_cleaner_{name.replace('.', '_')}": value for name, value in CLEANER.items()}
    with tempfile.TemporaryDirectory() as directory:
        broker = Echoless(Path(directory), settings)
        broker.start()
        try:
            yield Subject(
                "Echoless",
                broker.kafka_address,
                broker.data_dir,
                broker.process.pid,
                lambda _: _passes(broker),
            )
        finally:
            broker.kill()


@contextmanager
def _kafka() -> Iterator[Subject]:
    settings = {f"log.cleaner.{name}": value for name, value in CLEANER.items()}
    with tempfile.TemporaryDirectory() as directory:
        kafka = ApacheKafka(Path(directory), settings, jvm=KAFKA_JVM)
        kafka.start()
        checkpoint = kafka.data_dir / "cleaner-offset-checkpoint"

        def passes_of(topic: str) -> int:
            return checkpoint.exists() and f"{topic} 0 " in checkpoint.read_text()

        try:
            yield Subject("Kafka", kafka.address, kafka.data_dir, kafka.process.pid, passes_of)
        finally:
            kafka.kill()


def _passes(broker: Echoless) -> int:
    with urllib.request.urlopen(f"http://{broker.admin_address}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    name = "echoless_compaction_passes_total "
    return int(next(float(line.split()[-1]) for line in lines if line.startswith(name)))


async def _fill(subject: Subject, batches: Sequence[bytes], rounds: int) -> None:
    connection = await RawConnection.open(subject.address)
    await create_topic(connection, "plain", 1)
    for topic in [f"{kind}-{number}" for number in range(rounds) for kind in ("alone", "beside")]:
        await create_topic(connection, topic, 1, TOPIC)
        for batch in batches:
            (answer,) = await connection.produce(9, 1, [PartitionData(topic, 0, batch)])
            assert answer.error == 0
    await connection.close()


async def _clean_alone(subject: Subject, topic: str) -> None:
    size, begun = _closed_bytes(subject, topic), time.monotonic()
    used = processor_s(subject.pid)
    await _cleaned(subject, topic)
    took = time.monotonic() - begun
    subject.speeds.append(size / MEGABYTE / took)
    subject.processor_speeds.append(size / MEGABYTE / max(processor_s(subject.pid) - used, 0.01))
    left = _closed_bytes(subject, topic) / MEGABYTE
    print(
        f"{subject.name}: {size / MEGABYTE:.0f} MB became {left:.0f} MB in {took:.1f} s: "
        f"{subject.speeds[-1]:.1f} MB/s, {subject.processor_speeds[-1]:.1f} MB by second of processor time"
    )


async def _clean_beside_a_producer(subject: Subject, topic: str) -> None:
    connection = await RawConnection.open(subject.address)
    await _latencies(connection, lambda: False, seconds=0.5)
    quiet = await _latencies(connection, lambda: False)
    size, begun = _closed_bytes(subject, topic), time.monotonic()
    cleaning = asyncio.create_task(_cleaned(subject, topic))
    cleaning.add_done_callback(
        lambda _: subject.speeds_beside.append(size / MEGABYTE / (time.monotonic() - begun))
    )
    busy = await _latencies(connection, cleaning.done)
    await cleaning  # no later round may find the cleaner at work
    await connection.close()
    subject.ratios.append(_p99(busy) / _p99(quiet))
    for name, values in (("not cleaning", quiet), ("cleaning", busy)):
        print(f"{subject.name}, produce, {name}: {_percentiles(values)}")


async def _cleaned(subject: Subject, topic: str) -> None:
    """Returns when the topic was cleaned; asks in a thread, so that it holds no producer up."""
    before = await asyncio.to_thread(subject.passes_of, topic)
    await asyncio.to_thread(_set_ratio, subject.address, topic)
    async with asyncio.timeout(PASS_S):
        while await asyncio.to_thread(subject.passes_of, topic) == before:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


def _closed_bytes(subject: Subject, topic: str) -> int:
    """The size of all segments but the active one."""
    segments = sorted((subject.data_dir / f"{topic}-0").glob("*.log"))
    return sum(segment.stat().st_size for segment in segments[:-1])


async def _latencies(
    connection: RawConnection, is_over: Callable[[], bool], *, seconds: float = SECONDS
) -> list[float]:
    """Milliseconds of each produce request, sorted."""
    found: list[float] = []
    end = time.monotonic() + seconds
    batch = build_batch([Record(0, 0, b"k", random.Random(1).randbytes(1000))])
    while time.monotonic() < end and not is_over():
        begun = time.perf_counter()
        await connection.produce(9, -1, [PartitionData("plain", 0, batch)])
        found.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(PACE_S)
    return sorted(found)


def _p99(values: Sequence[float]) -> float:
    return values[len(values) * 99 // 100]


def _percentiles(values: Sequence[float]) -> str:
    return (
        f"p50 {values[len(values) // 2]:.2f} ms, p99 {_p99(values):.2f} ms, "
        f"p99.9 {values[len(values) * 999 // 1000]:.2f} ms, of {len(values)}"
    )


def _set_ratio(address: str, topic: str) -> None:
    entry = ConfigEntry(
        "min.cleanable.dirty.ratio", "0", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
