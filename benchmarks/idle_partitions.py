"""`python -m benchmarks.idle_partitions`: what one busy partition costs beside thousands of idle ones.

Three Echoless brokers, and three of Apache Kafka (KRaft) after them, on this machine. One librdkafka producer sends records of
1 KB to a topic of one partition, one at a time, acks=all, three replicas. Beside it stand 0, 300, 1,000 and 3,000
partitions, of three replicas as well, that no one uses. For each number: requests/s, the median and the 99th percentile of
the time of one, the processor time that the three brokers together take per request; and the share of a core that
each takes while no one sends anything.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.request_cost import processor_s
from benchmarks.versus_kafka import KAFKA_JVM
from tests.support.apache_kafka_cluster import ApacheKafkaCluster
from tests.support.cluster import Cluster

BUSY: Final = "busy"
REPLICAS: Final = 3
_RECORD: Final = b"x" * 1000
_CREATED_AT_ONCE: Final = 500
_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True)
class Brokers:
    """A running cluster of either kind."""

    bootstrap: str
    pids: Sequence[int]
    wait_until_whole: Callable[[], None]

    def processor_s(self) -> float:
        return sum(map(processor_s, self.pids))


@contextmanager
def echoless() -> Iterator[Brokers]:
    with (
        tempfile.TemporaryDirectory(prefix="idle-") as directory,
        Cluster(Path(directory)) as cluster,
    ):
        cluster.start()
        yield Brokers(
            cluster.bootstrap,
            [one.process.pid for one in cluster.brokers.values()],
            lambda: cluster.wait_until(cluster.is_in_sync, "all are in sync", within_s=_TIMEOUT_S),
        )


@contextmanager
def kafka() -> Iterator[Brokers]:
    with (
        tempfile.TemporaryDirectory(prefix="idle-kafka-") as directory,
        ApacheKafkaCluster(Path(directory), jvm=KAFKA_JVM) as cluster,
    ):
        cluster.start()
        yield Brokers(cluster.bootstrap, [one.process.pid for one in cluster.nodes], lambda: None)


def create(brokers: Brokers, topic: str, partitions: int) -> None:
    """Creates the topic; returns when brokers that say so have all replicas in sync."""
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    wanted = NewTopic(topic, num_partitions=partitions, replication_factor=REPLICAS)
    limits = {"request_timeout": _TIMEOUT_S, "operation_timeout": _TIMEOUT_S}
    # librdkafka fails what waits for a bootstrap address once it knows the brokers.
    admin.list_topics(timeout=_TIMEOUT_S)
    admin.create_topics([wanted], **limits)[topic].result(_TIMEOUT_S)
    brokers.wait_until_whole()


def send_one_by_one(bootstrap: str, seconds: float) -> list[float]:
    """Seconds that each record took, from `produce` to its acknowledgement."""
    client = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
    )
    took: list[float] = []

    def send() -> None:
        sent = time.perf_counter()

        def on_delivery(error: Any, _message: Any) -> None:
            assert error is None, error
            took.append(time.perf_counter() - sent)

        before = len(took)
        client.produce(BUSY, _RECORD, partition=0, on_delivery=on_delivery)
        while len(took) == before:
            client.poll(1)

    ends_at = time.perf_counter() + seconds
    while time.perf_counter() < ends_at:
        send()
    return took


def measure(brokers: Brokers, seconds: float, settles_s: float) -> str:
    """One line of figures."""
    time.sleep(settles_s)
    before = brokers.processor_s()
    time.sleep(seconds)
    idle = (brokers.processor_s() - before) / seconds / len(brokers.pids)
    send_one_by_one(brokers.bootstrap, seconds / 2)  # warms up
    before = brokers.processor_s()
    took = send_one_by_one(brokers.bootstrap, seconds)
    cost_us = 1e6 * (brokers.processor_s() - before) / len(took)
    cuts = statistics.quantiles([1000 * one for one in took], n=100)
    return f"{len(took) / seconds:10.0f} {cuts[49]:9.2f} {cuts[98]:9.2f} {cost_us:12.0f} {100 * idle:11.1f}"


def run(name: str, brokers: Brokers, arguments: argparse.Namespace) -> None:
    """All numbers of idle partitions, the fewest first."""
    create(brokers, BUSY, 1)
    there = 0
    for wanted in sorted(arguments.idle):
        while there < wanted:
            count = min(wanted - there, _CREATED_AT_ONCE)
            create(brokers, f"idle-{there}", count)
            there += count
        settles_s = arguments.settle if wanted else 1.0
        print(f"{name:10} {wanted:6} {measure(brokers, arguments.seconds, settles_s)}", flush=True)


KINDS: Final = {"echoless": echoless, "kafka": kafka}


def main() -> int:
    """Prints a line for each kind of broker and each number of idle partitions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--idle", type=int, nargs="+", default=[0, 300, 1000, 3000])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--settle", type=float, default=15, help="pause after a creation")
    parser.add_argument("--only", choices=list(KINDS))
    arguments = parser.parse_args()
    print("              idle requests/s   p50, ms   p99, ms  us/request  idle, % of a core each")
    for name in [arguments.only] if arguments.only else list(KINDS):
        with KINDS[name]() as brokers:
            run(name, brokers, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
