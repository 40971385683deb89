"""Echoless against a real Apache Kafka, in one run, with the same client.

    python -m benchmarks.versus_kafka [throughput|latency|start|memory ...] [--rounds N] [--seconds S]

Kafka runs with the heap and collector of its own start script (1 GB, G1), on the same disk.
Prints a table; `--json FILE` keeps the figures.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from benchmarks.pairs import Pair, in_turn, print_pair, run_load
from tests.support.apache_kafka import ApacheKafka
from tests.support.echoless import Echoless

KAFKA_JVM = (
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)
BATCH_BYTES = (100, 1_000, 16_000, 1_000_000)


@contextmanager
def both() -> Iterator[tuple[Echoless, ApacheKafka]]:
    """One broker of each kind, on fresh data."""
    directory = Path(tempfile.mkdtemp(prefix="versus-kafka-"))
    settings = {"message.max.bytes": "2000000"}
    kafka = ApacheKafka(directory / "kafka", settings, jvm=KAFKA_JVM)
    echoless = Echoless(directory / "echoless", {"message_max_bytes": "2000000"})
    try:
        kafka.start()
        echoless.start()
        yield echoless, kafka
    finally:
        echoless.process.kill()
        kafka.process.kill()
        shutil.rmtree(directory)


def throughput(rounds: int, seconds: float) -> dict[str, Pair]:
    """Acknowledged MB/s and batches/s by batch size, acks=all, idempotent."""
    figures = {}
    with both() as (echoless, kafka):
        for batch_bytes in BATCH_BYTES:
            options = {"batch_bytes": batch_bytes, "seconds": seconds}
            pairs = in_turn(
                rounds,
                lambda options=options: run_load(
                    "throughput", echoless.kafka_address, "load", **options
                ),
                lambda options=options: run_load("throughput", kafka.address, "load", **options),
            )
            figures[f"throughput {batch_bytes} B batches, batches/s"] = pairs["batches_per_s"]
            print_pair(f"throughput {batch_bytes} B, batches/s", pairs["batches_per_s"])
    return figures


def latency(rounds: int, seconds: float) -> dict[str, Pair]:
    """Produce latency of single records at a low rate."""
    figures = {}
    with both() as (echoless, kafka):
        for batch_bytes in (100, 1_000, 16_000):
            options = {"batch_bytes": batch_bytes, "seconds": seconds}
            pairs = in_turn(
                rounds,
                lambda options=options: run_load(
                    "latency", echoless.kafka_address, "load", **options
                ),
                lambda options=options: run_load("latency", kafka.address, "load", **options),
            )
            for name in ("p50_ms", "p99_ms", "p999_ms"):
                figures[f"latency {batch_bytes} B, {name}"] = pairs[name]
                print_pair(f"latency {batch_bytes} B, {name}", pairs[name])
    return figures


def start(rounds: int, _seconds: float) -> dict[str, Pair]:
    """From the command to the first acknowledged idempotent record, with a raw client."""
    pairs = in_turn(rounds, lambda: {"ms": start_echoless()}, lambda: {"ms": start_kafka()})
    print_pair("start to first acknowledged record, ms", pairs["ms"])
    return {"start to first acknowledged record, ms": pairs["ms"]}


def start_echoless() -> float:
    with tempfile.TemporaryDirectory() as directory:
        broker = Echoless(Path(directory))
        return until_first_record(broker.start, lambda: broker.kafka_address, broker.process.kill)


def start_kafka() -> float:
    with tempfile.TemporaryDirectory() as directory:
        broker = ApacheKafka(Path(directory), jvm=KAFKA_JVM)
        broker.format()
        return until_first_record(broker.start, lambda: broker.address, broker.process.kill)


def until_first_record(start_broker, address, kill) -> float:
    """Milliseconds from starting the process until one idempotent record is acknowledged."""
    from benchmarks.first_record import acknowledge_one

    begin = time.perf_counter()
    start_broker()
    try:
        acknowledge_one(address())
        return 1000 * (time.perf_counter() - begin)
    finally:
        kill()


def memory(rounds: int, _seconds: float) -> dict[str, Pair]:
    """Resident memory after the first record, then idle."""
    from benchmarks.first_record import acknowledge_one

    with both() as (echoless, kafka):
        acknowledge_one(echoless.kafka_address)
        acknowledge_one(kafka.address)
        pairs = in_turn(
            rounds,
            lambda: {"mb": resident_mb(echoless.process.pid)},
            lambda: {"mb": resident_mb(kafka.process.pid)},
        )
    print_pair("resident memory idle, MB", pairs["mb"])
    return {"resident memory idle, MB": pairs["mb"]}


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise LookupError(pid)


MEASUREMENTS = {"throughput": throughput, "latency": latency, "start": start, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=list(MEASUREMENTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures: dict[str, Pair] = {}
    for name in arguments.what:
        figures |= MEASUREMENTS[name](arguments.rounds, arguments.seconds)
    if arguments.json:
        arguments.json.write_text(json.dumps({k: asdict(v) for k, v in figures.items()}, indent=2))


if __name__ == "__main__":
    main()
