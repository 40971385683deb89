"""A topic of many partitions: the time to create, delete and start with it, and who waits meanwhile.

    python -m benchmarks.many_partitions [--partitions 1000 6000] [--rounds N] [--only echoless|kafka]

Echoless and Apache Kafka in one run, taking turns, each on fresh data. A creation lasts until the last
partition has taken a record, and once until every partition has: Kafka makes the others later. While the topic is created,
listed and deleted, one idempotent librdkafka producer sends 200 records/s to another topic; its
longest wait for an acknowledgement, and the median, are given for each step. Then a broker with the
topic, one record in each partition, is stopped and started, and killed and started; a start lasts
until a record of that producer is acknowledged, with a new client that tries all the time. Before the stop
nothing is asked of the broker for half a minute: the processor time that it takes then is given in per cent of a
core.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.versus_kafka import KAFKA_JVM
from tests.support.apache_kafka import ApacheKafka
from tests.support.echoless import Echoless

STEADY, MANY = "steady", "many"
_INTERVAL_S = 0.005
_TIMEOUT_S = 300.0
_METADATA_ROUNDS = 10
_SETTLING_S = 75.0
"""Time for flushes and checkpoints of the last records, and for the files of the topic that was deleted."""
_IDLE_S = 30.0

Figures = dict[str, float]


class Waits:
    """A producer that sends at an even rate, and each record's wait."""

    def __init__(self, address: str) -> None:
        self._waits: list[float] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._client = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
            }
        )

    def start(self) -> None:
        """Returns when a record is acknowledged: librdkafka takes half a second to ask for its producer id."""
        self._thread.start()
        while not self._waits:
            time.sleep(_INTERVAL_S)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def during(self, step: Callable[[], object]) -> tuple[float, float, float]:
        """Seconds that `step` took; the longest and the median wait in ms, until after it."""
        time.sleep(0.5)
        self._waits.clear()
        begun = time.perf_counter()
        step()
        took = time.perf_counter() - begun
        time.sleep(0.5)
        waits = list(self._waits)
        return took, 1000 * max(waits), 1000 * statistics.median(waits)

    def _run(self) -> None:
        due = time.perf_counter()
        while not self._stopping.is_set():
            sent = time.perf_counter()
            self._client.produce(STEADY, b"x" * 100, partition=0, on_delivery=self._noting(sent))
            due += _INTERVAL_S
            while (left := due - time.perf_counter()) > 0:
                self._client.poll(left)
            self._client.poll(0)
        self._client.flush(30)

    def _noting(self, sent: float) -> Callable[[Any, Any], None]:
        def note(error: Any, _message: Any) -> None:
            assert error is None, error
            self._waits.append(time.perf_counter() - sent)

        return note


def create(admin: AdminClient, topic: str, partitions: int) -> None:
    wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1)
    answers = admin.create_topics(
        [wanted], request_timeout=_TIMEOUT_S, operation_timeout=_TIMEOUT_S
    )
    answers[topic].result(_TIMEOUT_S)


def delete(admin: AdminClient, topic: str) -> None:
    answers = admin.delete_topics([topic], request_timeout=_TIMEOUT_S, operation_timeout=_TIMEOUT_S)
    answers[topic].result(_TIMEOUT_S)


def create_until_used(address: str, admin: AdminClient, partitions: int) -> None:
    """Creates the topic; returns when the last partition has taken a record."""
    create(admin, MANY, partitions)
    send(address, MANY, [partitions - 1])


def send(address: str, topic: str, partitions: Any) -> None:
    """Sends one record to each of the partitions."""
    client = Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": 5,
            "topic.metadata.refresh.fast.interval.ms": 20,
            "message.timeout.ms": int(_TIMEOUT_S * 1000),
            "queue.buffering.max.messages": 100_000,
            "log_level": 0,
        }
    )
    for partition in partitions:
        client.produce(topic, b"first", partition=partition)
    left = client.flush(_TIMEOUT_S)
    assert not left, f"{left} records were not acknowledged"


def list_topics(admin: AdminClient) -> None:
    """Fetches the metadata of everything, several times."""
    for _ in range(_METADATA_ROUNDS):
        admin.list_topics(timeout=_TIMEOUT_S)


def processor_s(pid: int) -> float:
    """Processor time that the process has taken so far, in threads and child processes that have ended too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def idle_percent(pid: int) -> float:
    """Per cent of a core that the process takes while nothing is asked of it."""
    time.sleep(_SETTLING_S)
    before = processor_s(pid)
    time.sleep(_IDLE_S)
    return 100 * (processor_s(pid) - before) / _IDLE_S


def until_acknowledged(start: Callable[[], None], address: Callable[[], str]) -> float:
    """Seconds from the command to an acknowledged record."""
    begun = time.perf_counter()
    starting = threading.Thread(target=start)
    starting.start()
    client = Producer(
        {
            "bootstrap.servers": address(),
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 20,
            "retry.backoff.ms": 20,
            "topic.metadata.refresh.fast.interval.ms": 20,
            "log_level": 0,
        }
    )
    client.produce(STEADY, b"first", partition=0)
    left = client.flush(_TIMEOUT_S)
    took = time.perf_counter() - begun
    starting.join()
    assert not left, "nothing was acknowledged"
    return took


def measure(broker: Echoless | ApacheKafka, partitions: int) -> Figures:
    """All steps with one broker."""

    def address() -> str:
        return broker.kafka_address if isinstance(broker, Echoless) else broker.address

    broker.start()
    admin = AdminClient({"bootstrap.servers": address(), "log_level": 0})
    create(admin, STEADY, 1)
    send(address(), STEADY, [0])
    waits = Waits(address())
    waits.start()
    figures: Figures = {}

    def step(name: str, action: Callable[[], object]) -> None:
        took, longest, median = waits.during(action)
        print(f"{name}: {took:.2f} s, waits {longest:.0f} / {median:.1f} ms", file=sys.stderr)
        figures[f"{name}, s"] = took
        figures[f"{name}: longest wait of a producer, ms"] = longest
        figures[f"{name}: median wait, ms"] = median

    step("nothing", lambda: time.sleep(2))
    step("creation", lambda: create_until_used(address(), admin, partitions))
    step(f"{_METADATA_ROUNDS} x metadata", lambda: list_topics(admin))
    step("deletion", lambda: delete(admin, MANY))
    time.sleep(2)
    step("creation again", lambda: create_until_used(address(), admin, partitions))
    step("a record each", lambda: send(address(), MANY, range(partitions)))
    # Kafka answers a creation before its partitions take records; this is when all of them have.
    figures["creation until every partition has a record, s"] = (
        figures["creation again, s"] + figures["a record each, s"]
    )
    waits.stop()
    figures["idle, % of a core"] = idle_percent(broker.process.pid)
    begun = time.perf_counter()
    broker.process.terminate()
    figures["clean stop, s"] = time.perf_counter() - begun
    figures["start after a clean stop, s"] = until_acknowledged(broker.start, address)
    send(address(), MANY, range(partitions))
    broker.process.kill()
    figures["start after SIGKILL, s"] = until_acknowledged(broker.start, address)
    return figures


@contextmanager
def fresh(kind: str) -> Iterator[Echoless | ApacheKafka]:
    """A broker on a new data directory."""
    directory = Path(tempfile.mkdtemp(prefix=f"many-partitions-{kind}-"))
    broker = (
        Echoless(directory)
        if kind == "echoless"
        else ApacheKafka(directory, {"auto.create.topics.enable": "false"}, jvm=KAFKA_JVM)
    )
    try:
        yield broker
    finally:
        broker.process.kill()
        shutil.rmtree(directory)


def run(kind: str, partitions: int) -> Mapping[str, float]:
    with fresh(kind) as broker:
        return measure(broker, partitions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1000, 6000])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=["echoless", "kafka"])
    arguments = parser.parse_args()
    kinds = [arguments.only] if arguments.only else ["echoless", "kafka"]
    for partitions in arguments.partitions:
        rounds = [{kind: run(kind, partitions) for kind in kinds} for _ in range(arguments.rounds)]
        print(f"\n{partitions} partitions" + "".join(f"{kind:>12}" for kind in kinds))
        for name in rounds[0][kinds[0]]:
            medians = [statistics.median(one[kind][name] for one in rounds) for kind in kinds]
            print(f"{name:56}" + "".join(f"{value:12.2f}" for value in medians), flush=True)


if __name__ == "__main__":
    main()
