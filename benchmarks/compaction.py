"""Compaction: how fast, in how much memory, and what a producer notices of it.

    python -m benchmarks.compaction [--megabytes 64] [--rounds 3]

*pass*: MB of log that one pass reads in a second, nothing else running, and the bytes that each key takes.
*produce*: the time from a 1 KB batch to its acknowledgement (`acks=all`, one at a time, every 2 ms) while the cleaner
is at work on another topic, and while it is not, in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
import tracemalloc
import urllib.request
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from protocol.record_batch import read_header
from protocol.records import Record, build_batch
from storage.compaction.cleaning import Cleaning
from storage.compaction.key_map import KeyMap, short_key
from storage.compaction.plan import CompactionRules
from storage.compaction.swap import Cleaned
from storage.log import Log
from storage.log_config import LogConfig
from storage.opening import Opening
from storage.os_file_system import OsFileSystem
from tests.support.echoless import Echoless
from tests.support.raw_client import RawConnection, create_topic
from tests.support.raw_produce import PartitionData

KEYS = 50_000
VALUE_BYTES = 100
RECORDS = 100
"""Records of a batch of the compacted topic."""
PACE_S = 0.002
SECONDS = 6.0
MEGABYTE = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        measure_pass(Path(directory) / "log", arguments.megabytes)
    for key_bytes in (8, 16, 36):
        print(f"key map, keys of {key_bytes} bytes: {bytes_per_key(key_bytes):.0f} bytes per key")
    asyncio.run(measure_produce(arguments.megabytes, arguments.rounds))


def keyed_batch(rng: random.Random) -> bytes:
    now_ms = int(time.time() * 1000)
    return build_batch(
        [
            Record(0, now_ms, b"key-%08d" % rng.randrange(KEYS), rng.randbytes(VALUE_BYTES))
            for _ in range(RECORDS)
        ]
    )


def measure_pass(directory: Path, megabytes: int) -> None:
    """Writes a log, then cleans it as fast as this process can."""
    directory.mkdir()
    rules = CompactionRules(min_dirty_ratio=0.0)
    config = LogConfig(segment_bytes=16 << 20, is_compacted=True, compaction_rules=rules)
    log = Log.open(
        Opening(directory=str(directory), config=config, fs=OsFileSystem(), now_ms=0, is_new=True)
    )
    rng = random.Random(7)
    while log.size_bytes < megabytes * MEGABYTE:
        batch = keyed_batch(rng)
        log.append(batch, read_header(batch), 0, 0)
    log.roll()
    log.flush()
    before, end = log.size_bytes, log.log_end_offset
    found = log.compaction.find_pass(
        config, log_start_offset=0, log_end_offset=end, limit=end, now_ms=0
    )
    assert found is not None
    begun = time.monotonic()
    cleaning = log.compaction.start(found, config, map_bytes_max=1 << 30, now_ms=0, steady_ms=0)
    carry_out(log, cleaning, config)
    took = time.monotonic() - begun
    print(
        f"pass: {before / MEGABYTE:.0f} MB became {log.size_bytes / MEGABYTE:.0f} MB in {took:.1f} s: "
        f"{before / MEGABYTE / took:.1f} MB/s of log, {end / took:,.0f} records/s, "
        f"{cleaning.report.keys} keys"
    )
    log.close()


def carry_out(log: Log, cleaning: Cleaning, config: LogConfig) -> None:
    for step in cleaning.steps():
        if isinstance(step, Cleaned):
            swap = log.compaction.start_swap(step, config)
            assert swap is not None
            swap.run()
            log.finish_swap(swap)


def bytes_per_key(key_bytes: int) -> float:
    """Memory of a map of 349,525 keys, which fills the default buffer, by key."""
    count = 64 * 1024 * 1024 // 192
    tracemalloc.start()
    keys = KeyMap(1 << 30)
    for number in range(count):
        keys.offsets[short_key(b"%0*d" % (key_bytes, number))] = 2**40 + number
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / count


async def measure_produce(megabytes: int, rounds: int) -> None:
    """Prints percentiles of both kinds of round."""
    with tempfile.TemporaryDirectory() as directory:
        broker = Echoless(Path(directory), {"log_cleaner_backoff_ms": "200"})
        broker.start()
        try:
            await compare(broker, megabytes, rounds)
        finally:
            broker.kill()


async def compare(broker: Echoless, megabytes: int, rounds: int) -> None:
    kafka = await RawConnection.open(broker.kafka_address)
    filler = await RawConnection.open(broker.kafka_address)
    await create_topic(kafka, "plain", 1)
    quiet, cleaning = [], []
    for number in range(rounds):
        topic = f"compacted-{number}"
        await create_topic(
            kafka,
            topic,
            1,
            {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "1",
                "segment.bytes": str(8 << 20),
            },
        )
        await fill(filler, topic, megabytes * MEGABYTE)
        await asyncio.sleep(12)  # until all of it is below the recovery point on disk
        quiet.append(await latencies(kafka))
        read = metric(broker, "compaction_read_bytes_total")
        set_ratio(broker.kafka_address, topic, "0")
        await asyncio.sleep(1)
        cleaning.append(await latencies(kafka))
        set_ratio(broker.kafka_address, topic, "1")
        worked = metric(broker, "compaction_read_bytes_total") - read
        for name, values in (("not cleaning", quiet[-1]), ("cleaning", cleaning[-1])):
            print(f"produce, round {number}, {name}: {percentiles(values)}")
        print(f"produce, round {number}: the cleaner read {worked / MEGABYTE:.0f} MB meanwhile")
    ratios = [p99(b) / p99(a) for a, b in zip(quiet, cleaning, strict=True)]
    print(f"produce, p99 while cleaning / p99 without: {statistics.median(ratios):.2f} {ratios}")


async def fill(connection: RawConnection, topic: str, size: int) -> None:
    rng, sent = random.Random(9), 0
    while sent < size:
        batch = keyed_batch(rng)
        (answer,) = await connection.produce(9, 1, [PartitionData(topic, 0, batch)])
        assert answer.error == 0
        sent += len(batch)


async def latencies(connection: RawConnection) -> list[float]:
    """Milliseconds of each produce request of a while."""
    rng, found = random.Random(1), []
    end = time.monotonic() + SECONDS
    batch = build_batch([Record(0, 0, b"k", rng.randbytes(1000))])
    while time.monotonic() < end:
        begun = time.perf_counter()
        await connection.produce(9, -1, [PartitionData("plain", 0, batch)])
        found.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(PACE_S)
    return sorted(found)


def p99(values: list[float]) -> float:
    return values[len(values) * 99 // 100]


def percentiles(values: list[float]) -> str:
    return (
        f"p50 {values[len(values) // 2]:.2f} ms, p99 {p99(values):.2f} ms, "
        f"p99.9 {values[len(values) * 999 // 1000]:.2f} ms, of {len(values)}"
    )


def set_ratio(address: str, topic: str, ratio: str) -> None:
    entry = ConfigEntry(
        "min.cleanable.dirty.ratio", ratio, incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def metric(broker: Echoless, name: str) -> float:
    with urllib.request.urlopen(f"http://{broker.admin_address}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"echoless_{name} "))


if __name__ == "__main__":
    main()
