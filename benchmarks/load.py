"""The load: one idempotent librdkafka producer, the same for every broker under test.

One record is one batch (or `records_per_batch` of them are), so the batch size is what varies. Run
as a program in a separate process, so that no run inherits another's client:

    python -m benchmarks.load throughput --bootstrap H:P --topic T --batch-bytes N --seconds S
    python -m benchmarks.load latency    --bootstrap H:P --topic T --batch-bytes N --seconds S --rate R

Each prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from typing import Any

from confluent_kafka import Producer

from tests.compatibility.clients.python.security import read_settings

_RECORD_BYTES_MAX = 16_384
"""Larger batches are made of records of this size, as real ones are."""


def producer(arguments: argparse.Namespace, **settings: Any) -> Producer:
    """librdkafka with a user's settings, except for the batch size under test."""
    return Producer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "enable.idempotence": arguments.idempotent,
            "acks": arguments.acks,
            "queue.buffering.max.messages": 5_000,
            "queue.buffering.max.kbytes": 256 * 1024,
            "message.max.bytes": 2_000_000,
            "socket.nagle.disable": True,
            **read_settings(arguments.security),
            **settings,
        }
    )


def records_per_batch(batch_bytes: int) -> int:
    return max(1, batch_bytes // _RECORD_BYTES_MAX)


def throughput(arguments: argparse.Namespace) -> dict[str, float]:
    """As many batches as possible for some seconds, at most librdkafka's five in flight."""
    count = records_per_batch(arguments.batch_bytes)
    size = arguments.batch_bytes // count
    linger_ms = 0 if count == 1 else 50
    client = producer(
        arguments,
        **{
            "batch.num.messages": count,
            "linger.ms": linger_ms,
            "max.in.flight.requests.per.connection": 5,
        },
    )
    payload = os.urandom(size)
    delivered, failed = 0, 0

    def on_delivery(error: Any, _message: Any) -> None:
        nonlocal delivered, failed
        if error is None:
            delivered += 1
        else:
            failed += 1

    def send_until(deadline: float) -> None:
        while time.perf_counter() < deadline:
            for _ in range(256):
                while True:
                    try:
                        client.produce(arguments.topic, payload, on_delivery=on_delivery)
                        break
                    except BufferError:
                        client.poll(0.005)
            client.poll(0)

    send_until(time.perf_counter() + arguments.warm_up)
    begin, counted = time.perf_counter(), delivered
    send_until(begin + arguments.seconds)
    elapsed, acknowledged = time.perf_counter() - begin, delivered - counted
    client.flush(60)
    return {
        "batches_per_s": acknowledged / count / elapsed,
        "megabytes_per_s": acknowledged * size / elapsed / 1e6,
        "failed": failed,
        "batches": delivered / count,
    }


def latency(arguments: argparse.Namespace) -> dict[str, float]:
    """One record at a time at a steady, low rate: the time from `produce` to the delivery report."""
    client = producer(arguments, **{"linger.ms": 0})
    payload = os.urandom(arguments.batch_bytes)
    took: list[float] = []
    count = int(arguments.rate * (arguments.seconds + arguments.warm_up))
    skip = int(arguments.rate * arguments.warm_up)
    start = time.perf_counter()
    for number in range(count):
        due = start + number / arguments.rate
        while (left := due - time.perf_counter()) > 0:
            client.poll(left)
        sent = time.perf_counter()

        def on_delivery(error: Any, _message: Any, sent: float = sent) -> None:
            assert error is None, error
            took.append(time.perf_counter() - sent)

        client.produce(arguments.topic, payload, on_delivery=on_delivery)
    client.flush(60)
    milliseconds = sorted(1000 * one for one in took[skip:])
    cuts = statistics.quantiles(milliseconds, n=1000)
    return {
        "p50_ms": cuts[499],
        "p99_ms": cuts[989],
        "p999_ms": cuts[998],
        "max_ms": milliseconds[-1],
        "count": len(milliseconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["throughput", "latency"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--batch-bytes", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warm-up", type=float, default=2)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--acks", choices=["0", "1", "all"], default="all")
    parser.add_argument("--security", help="file of settings, by librdkafka's names")
    parser.add_argument("--plain", dest="idempotent", action="store_false")
    arguments = parser.parse_args()
    print(json.dumps({"throughput": throughput, "latency": latency}[arguments.kind](arguments)))


if __name__ == "__main__":
    main()
