"""Our producer compared with librdkafka: the same records to the same Echoless broker.

    python -m benchmarks.producer [--rounds N] [--records N]

Both are idempotent, wait for all replicas, keep five batches in flight for a partition and end a
batch at the same size. Two figures: records/s, from the acknowledgement of a first record (librdkafka may ask for its
producer id half a second late) to that of the last, and microseconds of the client's processor time per record, over all
of its threads.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from benchmarks.pairs import in_turn, print_pair
from echoless.client.producer import Producer
from echoless.client.settings import Settings
from tests.support.echoless import Echoless

LOADS = ((1, 100, 65_536), (12, 100, 65_536), (12, 100, 1_500), (1, 1000, 65_536))
"""Partitions, value size and batch size in bytes."""
Load = tuple[int, int, int]
Cost = tuple[float, float]
"""Seconds by the clock, and of processor time."""
_FULL_S: Final = 0.001
"""How long to wait when librdkafka's queue is full: without callbacks nothing ends the wait early."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=600_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        broker = Echoless(
            Path(directory), {"log_retention_bytes": "500000000", "num_partitions": "12"}
        )
        broker.start()
        try:
            for load in LOADS:
                compare(broker.kafka_address, load, arguments)
        finally:
            broker.kill()


def compare(address: str, load: Load, arguments: argparse.Namespace) -> None:
    def run(produce: Callable[[str, Load, int], Cost]) -> Mapping[str, float]:
        seconds, used = produce(address, load, arguments.records)
        return {"rate": arguments.records / seconds / 1000, "us": 1e6 * used / arguments.records}

    pairs = in_turn(arguments.rounds, lambda: run(ours), lambda: run(librdkafka))
    partitions, value_bytes, batch_bytes = load
    name = f"{partitions} partitions, {value_bytes} B in {batch_bytes} B"
    print_pair(f"{name}, 1000 records/s", pairs["rate"], "ours", "librdkafka")
    print_pair(f"{name}, CPU us/record", pairs["us"], "ours", "librdkafka")


def ours(address: str, load: Load, records: int) -> Cost:
    partitions, value_bytes, batch_bytes = load
    value = b"v" * value_bytes
    with Producer(address, Settings(batch_bytes_max=batch_bytes)) as producer:
        producer.send("load", value, partition=0)
        producer.flush()
        begun, used = time.perf_counter(), time.process_time()
        for number in range(records):
            producer.send("load", value, partition=number % partitions)
        producer.flush()
        return time.perf_counter() - begun, time.process_time() - used


def librdkafka(address: str, load: Load, records: int) -> Cost:
    from confluent_kafka import Producer as Librdkafka

    partitions, value_bytes, batch_bytes = load
    value = b"v" * value_bytes
    producer = Librdkafka(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "batch.size": batch_bytes,
            "linger.ms": 5,
            "queue.buffering.max.kbytes": 32 * 1024,
            "queue.buffering.max.messages": 10_000_000,
        }
    )
    producer.produce("load", value, partition=0)
    producer.flush()
    begun, used = time.perf_counter(), time.process_time()
    for number in range(records):
        while True:
            try:
                producer.produce("load", value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(_FULL_S)
    producer.flush()
    return time.perf_counter() - begun, time.process_time() - used


if __name__ == "__main__":
    main()
