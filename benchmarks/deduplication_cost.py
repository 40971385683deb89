"""The cost of de-duplication: the same load with idempotence and without, on the same broker.

    python -m benchmarks.deduplication_cost [--rounds N] [--seconds S]

Two views. *client*: acknowledged batches/s of librdkafka. *broker*: CPU microseconds that the
broker spends on one batch (user and system), which leaves the client's own cost of idempotence out.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from benchmarks.pairs import in_turn, print_pair, run_load
from benchmarks.raw_load import send_batches
from tests.support.echoless import Echoless

BATCH_BYTES = (1_000, 16_000, 1_000_000)
_CLOCK_TICKS_PER_S = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        broker = Echoless(Path(directory), {"log_retention_bytes": "1000000000"})
        broker.start()
        try:
            for batch_bytes in BATCH_BYTES:
                compare_client(broker, batch_bytes, arguments.rounds, arguments.seconds)
                compare_broker(broker, batch_bytes, arguments.rounds)
        finally:
            broker.kill()


def compare_client(broker: Echoless, batch_bytes: int, rounds: int, seconds: float) -> None:
    options = {"batch_bytes": batch_bytes, "seconds": seconds}
    address = broker.kafka_address
    pairs = in_turn(
        rounds,
        lambda: run_load("throughput", address, "load", **options),
        lambda: run_load("throughput", address, "load", plain=True, **options),
    )
    name = f"client, {batch_bytes} B, batches/s"
    print_pair(name, pairs["batches_per_s"], "idempotent", "plain")


def compare_broker(broker: Echoless, batch_bytes: int, rounds: int) -> None:
    count = max(200, min(20_000, 200_000_000 // batch_bytes))
    pairs = in_turn(
        rounds,
        lambda: {"us": cpu_per_batch(broker, batch_bytes, count, idempotent=True)},
        lambda: {"us": cpu_per_batch(broker, batch_bytes, count, idempotent=False)},
    )
    name = f"broker, {batch_bytes} B, CPU us/batch"
    print_pair(name, pairs["us"], "idempotent", "plain")


def cpu_per_batch(broker: Echoless, batch_bytes: int, count: int, *, idempotent: bool) -> float:
    """CPU microseconds of the broker for each of `count` pipelined batches."""
    before = cpu_seconds(broker.process.pid)
    asyncio.run(send_batches(broker.kafka_address, batch_bytes, count, idempotent=idempotent))
    return 1e6 * (cpu_seconds(broker.process.pid) - before) / count


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS_PER_S


if __name__ == "__main__":
    main()
