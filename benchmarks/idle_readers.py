"""`python -m benchmarks.idle_readers`: what a consumer of thousands of partitions costs the broker for each record it gets.

One broker of Echoless, and one of Apache Kafka after it, on this machine. A topic of 1, 100, 1,000 and 3,000 partitions, of which one
gets records of 1 KB, one at a time; the next one follows when the reader has got it. A librdkafka consumer, which names all
partitions in each fetch, or Kafka's own Java consumer, which has a fetch session, reads all partitions. For each number: the
processor time of the broker per record, the produce request included, the median time from `produce` to the reader, and
the share of a core that the broker takes while no one sends anything. `alone`: the producer without a reader.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.request_cost import processor_s
from benchmarks.versus_kafka import KAFKA_JVM
from tests.support.apache_kafka import JARS, ApacheKafka
from tests.support.echoless import Echoless

PARTITIONS: Final = (1, 100, 1_000, 3_000)
READERS: Final = ("alone", "librdkafka", "java")
_TIMEOUT_S: Final = 120.0
_RECORD: Final = "x" * 1000
_JAVA: Final = (
    *("java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{JARS}/*"),
    "org.apache.kafka.tools.consumer.ConsoleConsumer",
)

GetsOne = Callable[[], None]
"""Returns when the reader has got the next record."""


@contextmanager
def echoless() -> Iterator[tuple[str, int]]:
    """The address of a broker, and its process."""
    with tempfile.TemporaryDirectory(prefix="readers-") as directory:
        broker = Echoless(Path(directory))
        broker.start()
        try:
            yield broker.kafka_address, broker.process.pid
        finally:
            broker.kill()


@contextmanager
def kafka() -> Iterator[tuple[str, int]]:
    with tempfile.TemporaryDirectory(prefix="readers-kafka-") as directory:
        broker = ApacheKafka(Path(directory), {}, jvm=KAFKA_JVM)
        broker.start()
        try:
            yield broker.kafka_address, broker.process.pid
        finally:
            broker.kill()


@contextmanager
def alone(_bootstrap: str, _topic: str, _partitions: int) -> Iterator[GetsOne]:
    """No reader."""
    yield lambda: None


@contextmanager
def librdkafka(bootstrap: str, topic: str, partitions: int) -> Iterator[GetsOne]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])

    def gets_one() -> None:
        message = None
        while message is None or message.error():
            message = consumer.poll(_TIMEOUT_S)

    yield gets_one
    consumer.close()


@contextmanager
def java(bootstrap: str, topic: str, _partitions: int) -> Iterator[GetsOne]:
    command = (*_JAVA, "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        lines = process.stdout
        assert lines is not None
        yield lambda: _line(lines.readline())
        process.kill()


def _line(line: bytes) -> None:
    if not line:
        raise SystemExit("the Java consumer has ended")


def measure(
    bootstrap: str, pid: int, reader: str, partitions: int, seconds: float
) -> tuple[float, float, float]:
    """Processor time per record in us, median in ms, and the share of a core when idle in per cent."""
    topic = f"{reader}-{partitions}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(_TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    with _READERS[reader](bootstrap, topic, partitions) as gets_one:

        def send() -> float:
            began_s = time.perf_counter()
            producer.produce(topic, _RECORD, partition=0)
            assert producer.flush(_TIMEOUT_S) == 0
            gets_one()
            return time.perf_counter() - began_s

        _for(seconds, send)  # the reader has found its place, and the broker is warm
        begun_s = processor_s(pid)
        took = _for(seconds, send)
        spent_s = processor_s(pid) - begun_s
        begun_s = processor_s(pid)
        time.sleep(seconds)
        idle_s = processor_s(pid) - begun_s
    admin.delete_topics([topic])[topic].result(_TIMEOUT_S)
    return 1e6 * spent_s / len(took), 1e3 * statistics.median(took), 100 * idle_s / seconds


def _for(seconds: float, work: Callable[[], float]) -> Sequence[float]:
    end_s, took = time.perf_counter() + seconds, [work()]
    while time.perf_counter() < end_s:
        took.append(work())
    return took


_READERS: Final = {"alone": alone, "librdkafka": librdkafka, "java": java}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle_readers")
    parser.add_argument("--partitions", type=int, nargs="+", default=PARTITIONS)
    parser.add_argument("--readers", nargs="+", choices=READERS, default=READERS)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", choices=("echoless", "kafka"))
    options = parser.parse_args()
    brokers = {"echoless": echoless, "kafka": kafka}
    print("| broker | reader | partitions | processor time, us a record | p50, ms | idle, % |")
    print("|---|---|---|---|---|---|")
    for name, start in brokers.items():
        if options.only in {None, name}:
            with start() as (bootstrap, pid):
                for reader in options.readers:
                    for partitions in options.partitions:
                        figures = measure(bootstrap, pid, reader, partitions, options.seconds)
                        spent, median, idle = figures
                        row = f"| {name} | {reader} | {partitions:,} |"
                        print(f"{row} {spent:,.0f} | {median:.1f} | {idle:.1f} |", flush=True)


if __name__ == "__main__":
    main()
