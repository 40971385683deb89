"""The load: librdkafka producers that end one transaction after the other, the same for every broker under test.

A transaction is a record of 100 bytes for each of some partitions, and its end; without transactions the same records are
flushed instead. Run as a program, so that no run inherits another's client:

    python -m benchmarks.transaction_load transactions --bootstrap H:P --topic T --partitions 10 --producers 5 --name N
    python -m benchmarks.transaction_load idempotent   ...
    python -m benchmarks.transaction_load latency      ... --rate 50

Prints a line when its producers are warm, waits for a line, runs for `--seconds`, and prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

_RECORD: Final = b"x" * 100
_TIMEOUT_S: Final = 60.0


def producer(arguments: argparse.Namespace, number: int) -> Producer:
    """librdkafka as a user has it, with an id of its own if it has transactions."""
    settings: dict[str, Any] = {
        "bootstrap.servers": arguments.bootstrap,
        "enable.idempotence": True,
        "socket.nagle.disable": True,
    }
    if arguments.kind != "idempotent":
        settings["transactional.id"] = f"{arguments.name}-{number}"
    client = Producer(settings)
    if arguments.kind != "idempotent":
        client.init_transactions(_TIMEOUT_S)
    return client


def end_one(client: Producer, arguments: argparse.Namespace, value: bytes = _RECORD) -> None:
    """Sends a record to each partition; returns when they are committed, or acknowledged."""
    if arguments.kind != "idempotent":
        client.begin_transaction()
    for partition in range(arguments.partitions):
        client.produce(arguments.topic, value, partition=partition)
    if arguments.kind == "idempotent":
        client.flush(_TIMEOUT_S)
    else:
        client.commit_transaction(_TIMEOUT_S)


class Window:
    """The time in which what the producers do counts: from the line on standard input on."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun = threading.Event()
        self._ends_at = float("inf")

    def open(self) -> None:
        """Says that all is warm, and waits for the line."""
        print("ready", flush=True)
        sys.stdin.readline()
        self._ends_at = time.monotonic() + self._seconds
        self._begun.set()

    @property
    def is_open(self) -> bool:
        return self._begun.is_set() and time.monotonic() < self._ends_at

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._ends_at


def throughput(arguments: argparse.Namespace) -> dict[str, float]:
    """The transactions of all producers in the window, as many as they can."""
    window = Window(arguments.seconds)
    clients = [producer(arguments, number) for number in range(arguments.producers)]
    counts = [0] * len(clients)
    warm = threading.Barrier(len(clients) + 1)

    def run(place: int) -> None:
        end_one(clients[place], arguments)
        warm.wait()
        while not window.is_over:
            end_one(clients[place], arguments)
            counts[place] += window.is_open

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(clients))]
    for one in threads:
        one.start()
    warm.wait()
    time.sleep(arguments.warm_up)
    window.open()
    for one in threads:
        one.join()
    return {"transactions": sum(counts)}


def latency(arguments: argparse.Namespace) -> dict[str, float]:
    """Milliseconds from `produce`, which the commit follows at once, to the record at a reader of committed records, at a steady rate."""
    window, client = Window(arguments.seconds), producer(arguments, 0)
    begun: list[float] = []
    seen: dict[int, float] = {}
    is_over = threading.Event()
    reader = Consumer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "group.id": arguments.name,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    _, end = reader.get_watermark_offsets(TopicPartition(arguments.topic, 0), _TIMEOUT_S)
    reader.assign([TopicPartition(arguments.topic, 0, end)])

    def read() -> None:
        while not is_over.is_set():
            message = reader.poll(0.2)
            if message is not None and message.error() is None:
                seen[int(message.value() or b"")] = time.perf_counter()

    def send_until(is_enough: Callable[[], bool]) -> None:
        start, first = time.perf_counter(), len(begun)
        while not is_enough():
            due = start + (len(begun) - first) / arguments.rate
            time.sleep(max(due - time.perf_counter(), 0))
            begun.append(time.perf_counter())
            end_one(client, arguments, b"%d" % (len(begun) - 1))

    reading = threading.Thread(target=read)
    reading.start()
    warm_at = time.monotonic() + arguments.warm_up
    send_until(lambda: time.monotonic() >= warm_at)
    window.open()
    first = len(begun)
    send_until(lambda: window.is_over)
    deadline = time.monotonic() + _TIMEOUT_S
    while not all(number in seen for number in range(first, len(begun))):
        assert time.monotonic() < deadline, f"{len(begun)} were committed, {len(seen)} seen"
        time.sleep(0.01)
    is_over.set()
    reading.join()
    reader.close()
    took = [1000 * (seen[number] - begun[number]) for number in range(first, len(begun))]
    cuts = statistics.quantiles(took, n=100)
    return {"transactions": len(took), "p50_ms": cuts[49], "p99_ms": cuts[98]}


def main() -> None:
    """Runs one load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["transactions", "idempotent", "latency"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--name", required=True, help="that transactional ids begin with")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--warm-up", type=float, default=1)
    parser.add_argument("--rate", type=float, default=20)
    arguments = parser.parse_args()
    run = latency if arguments.kind == "latency" else throughput
    print(json.dumps(run(arguments)), flush=True)


if __name__ == "__main__":
    main()
