"""The Spark reader and thousands of partitions: what planning costs, with almost all of them idle.

    python -m benchmarks.reader_partitions [--partitions 2000] [--topics 1 200] [--rounds 5] [--targets echoless apache-kafka]

The partitions are in one topic, or in many that a pattern finds; one of them gets records. For each source: seconds of a job that reads
all, seconds and processor time of a micro-batch, and the number of tasks; for the reader also the driver's requests and the time that
they take, without Spark.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.reader import hide_hypothesis, processor_s
from benchmarks.versus_kafka import KAFKA_JVM
from echoless.client.connection import BrokerConnection
from echoless.pipeline.exactly_once.data_source import register
from echoless.pipeline.kafka_connector import connector_settings
from echoless.pipeline.reading.connections import close_kept
from echoless.pipeline.reading.options import read_reader_options
from echoless.pipeline.reading.stream_reader import TopicStreamReader
from echoless.pipeline.session import open_session
from tests.support.apache_kafka import ApacheKafka
from tests.support.echoless import Echoless

_SECONDS: Final = 300.0
_RECORDS: Final = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--topics", type=int, nargs="+", default=[1, 200])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--targets", nargs="+", default=["echoless", "apache-kafka"])
    arguments = parser.parse_args()
    settings = {"spark.driver.memory": "2g", **connector_settings()}
    with tempfile.TemporaryDirectory(prefix="echoless-reader-") as name:
        hide_hypothesis(Path(name))
        spark = open_session("reader-partitions", master="local[2]", settings=settings)
        register(spark)
        for target in arguments.targets:
            broker = (
                ApacheKafka(Path(name) / target, jvm=KAFKA_JVM)
                if target == "apache-kafka"
                else Echoless(Path(name) / target)
            )
            broker.start()
            try:
                for topics in arguments.topics:
                    prefix = f"of{topics}-"
                    create(broker.kafka_address, prefix, topics, arguments.partitions // topics)
                    print(f"--- {target}, {topics} topics", flush=True)
                    measure(Measured(spark, broker.kafka_address, prefix), arguments.rounds)
            finally:
                broker.kill()
        spark.stop()


def create(address: str, prefix: str, topics: int, partitions: int) -> None:
    """Creates the topics; the first partition of the first one gets records."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    for first in range(0, topics, 20):
        new = [
            NewTopic(f"{prefix}{number}", partitions, 1)
            for number in range(first, min(first + 20, topics))
        ]
        for created in admin.create_topics(new, request_timeout=_SECONDS).values():
            created.result(_SECONDS)
    write(address, f"{prefix}0")


def write(address: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": address, "log_level": 2})
    for number in range(_RECORDS):
        producer.produce(topic, b"%08d" % number, partition=0)
    assert producer.flush(_SECONDS) == 0


class Measured(NamedTuple):
    """Topics of a broker, and a Spark to read them."""

    spark: Any
    address: str
    prefix: str

    @property
    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.address, "subscribePattern": f"^{self.prefix}"}

    @property
    def busy_topic(self) -> str:
        return f"{self.prefix}0"


def measure(measured: Measured, rounds: int) -> None:
    """The driver's part alone, then jobs and streams of both sources."""
    plan_alone(measured.options)
    for source in ("echoless", "kafka"):
        frame = measured.spark.read.format(source).options(**measured.options)
        seconds = []
        for _ in range(rounds):
            begun = time.perf_counter()
            assert frame.load().count() % _RECORDS == 0
            seconds.append(f"{time.perf_counter() - begun:.2f}")
        tasks = frame.load().rdd.getNumPartitions()
        print(f"{source}: jobs {' '.join(seconds)} s, {tasks} tasks", flush=True)
        stream(measured, source, rounds)


def plan_alone(options: dict[str, str]) -> None:
    """The driver's part of a stream in this process: requests, and the time of a micro-batch that is planned."""
    parsed = read_reader_options({**options, "startingOffsets": "earliest"}, is_stream=True)
    with counted_requests() as requests:
        reader = TopicStreamReader(parsed)
        at = reader.initialOffset()
        print(f"the first offsets: {dict(requests)}", flush=True)
        requests.clear()
        begun, used = time.perf_counter(), time.process_time()
        end = reader.latestOffset(at, reader.getDefaultReadLimit())
        tasks = len(reader.partitions(at, end))
        print(
            f"a micro-batch: {dict(requests)}, {tasks} tasks, {time.perf_counter() - begun:.3f} s, "
            f"{time.process_time() - used:.3f} s of the driver's processor time, "
            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB",
            flush=True,
        )
    close_kept()


@contextlib.contextmanager
def counted_requests() -> Iterator[Counter[str]]:
    """Counts the requests of this process, by API."""
    found: Counter[str] = Counter()
    request = BrokerConnection.request

    def counting(connection: BrokerConnection, api: str, fields: Any) -> Any:
        found[api] += 1
        return request(connection, api, fields)

    BrokerConnection.request = counting  # type: ignore[method-assign, assignment]
    try:
        yield found
    finally:
        BrokerConnection.request = request  # type: ignore[method-assign]


def stream(measured: Measured, source: str, rounds: int) -> None:
    """Micro-batches of one busy partition, one after the other."""
    stream = measured.spark.readStream.format(source).options(**measured.options)
    writer = stream.option("startingOffsets", "earliest").load().writeStream.format("noop")
    with tempfile.TemporaryDirectory(prefix="echoless-checkpoint-") as place:
        query = writer.option("checkpointLocation", place).start()
        query.processAllAvailable()
        begun, used = time.perf_counter(), processor_s()
        for _ in range(rounds):
            write(measured.address, measured.busy_topic)
            query.processAllAvailable()
        elapsed, spent = (time.perf_counter() - begun) / rounds, (processor_s() - used) / rounds
        batches = [one for one in query.recentProgress if one["numInputRows"]]
        query.stop()
    planning = [one["durationMs"].get("latestOffset", 0) for one in batches]
    print(
        f"{source}: a micro-batch {elapsed:.3f} s, {spent:.3f} s of processor time, latestOffset {planning} ms",
        flush=True,
    )


if __name__ == "__main__":
    main()
