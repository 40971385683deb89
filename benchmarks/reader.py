"""The reader or Spark's own Kafka source: how many rows per second, from the same broker?

    python -m benchmarks.reader [--records 1000000] [--rounds 5] [--targets echoless apache-kafka] [--shapes 100 1000-zstd]

One Spark (`local[2]`) reads a topic of four partitions through each source in turn, and sums what it reads. A shape is the bytes of a
value, perhaps with a codec, and perhaps with `headers`. The processor time is that of Spark's processes, the JVM and Python's
workers; the broker's is not in it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.pairs import in_turn, print_pair
from benchmarks.versus_kafka import KAFKA_JVM
from echoless.pipeline.exactly_once.data_source import register
from echoless.pipeline.kafka_connector import connector_settings
from echoless.pipeline.session import open_session
from tests.support.apache_kafka import ApacheKafka
from tests.support.echoless import Echoless
from tests.support.process_tree import processes_below

PARTITIONS: Final = 4
SHAPES: Final = ("100", "100-lz4", "100-zstd", "100-headers", "1000", "1000-lz4")
_SECONDS: Final = 120.0
_POLL_EVERY: Final = 5_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="of values of 100 bytes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--targets", nargs="+", default=["echoless", "apache-kafka"])
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES))
    arguments = parser.parse_args()
    settings = {"spark.driver.memory": "2g", **connector_settings()}
    with tempfile.TemporaryDirectory(prefix="echoless-reader-") as name:
        hide_hypothesis(Path(name))
        spark = open_session("reader", master="local[2]", settings=settings)
        register(spark)
        for target in arguments.targets:
            directory = Path(name) / target
            broker = (
                ApacheKafka(directory, jvm=KAFKA_JVM)
                if target == "apache-kafka"
                else Echoless(directory)
            )
            broker.start()
            try:
                for shape in arguments.shapes:
                    compare(spark, broker.kafka_address, target, shape, arguments)
            finally:
                broker.kill()
        spark.stop()


def hide_hypothesis(directory: Path) -> None:
    """Has Spark's Python processes do without Hypothesis, as users' do: kio imports it where it is, for 0.15 s."""
    (directory / "hypothesis.py").write_text("raise ImportError\n")
    paths = [str(directory), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def compare(
    spark: Any, address: str, target: str, shape: str, arguments: argparse.Namespace
) -> None:
    """Reads one topic through both in turn, after a round that does not count."""
    records = write_topic(address, shape, arguments.records)

    def read(source: str) -> dict[str, float]:
        frame = spark.read.format(source).option("kafka.bootstrap.servers", address)
        frame = frame.option("subscribe", shape).option("includeHeaders", "headers" in shape)
        begun, used = time.perf_counter(), processor_s()
        sums = ["count(1)", "sum(offset)", "sum(length(key))", "sum(length(value))"]
        if "headers" in shape:
            sums.append("sum(size(headers))")
        (row,) = frame.load().selectExpr(*sums).collect()
        assert row[0] == records, row
        elapsed = time.perf_counter() - begun
        return {
            "rows/s": records / elapsed,
            "rows per CPU second": records / (processor_s() - used),
        }

    read("echoless")
    read("kafka")
    pairs = in_turn(arguments.rounds, lambda: read("echoless"), lambda: read("kafka"))
    for name, pair in pairs.items():
        print_pair(f"{target}, {shape}, {name}", pair, "reader", "Spark's")


def write_topic(address: str, shape: str, records_of_100: int) -> int:
    """Writes a topic of that name; returns the number of records."""
    size, *more = shape.split("-")
    count = max(records_of_100 * 100 // int(size), 1)
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    admin.create_topics([NewTopic(shape, PARTITIONS, 1)])[shape].result(_SECONDS)
    codecs = [one for one in more if one != "headers"]
    producer = Producer(
        {
            "bootstrap.servers": address,
            "compression.type": codecs[0] if codecs else "none",
            "linger.ms": 20,
            "queue.buffering.max.messages": 200_000,
        }
    )
    headers: list[tuple[str, str | bytes | None]] = (
        [("source", b"benchmark"), ("number", b"1")] if "headers" in more else []
    )
    # Half of it compresses, as text does.
    filler = os.urandom(int(size) // 2) + b"-" * (int(size) - int(size) // 2 - 8)
    for number in range(count):
        value = number.to_bytes(8, "big") + filler
        key = b"%08d" % number
        while True:
            try:
                producer.produce(
                    shape, value, key=key, partition=number % PARTITIONS, headers=headers
                )
            except BufferError:
                producer.poll(0.1)
                continue
            break
        if number % _POLL_EVERY == 0:
            producer.poll(0)
    assert producer.flush(_SECONDS) == 0
    return count


def processor_s() -> float:
    """Processor time of Spark's JVM and everything below it, and of those that it has waited for."""
    jvm = next(one.pid for one in processes_below(os.getpid()) if b"SparkSubmit" in one.command)
    ticks = 0
    for pid in (jvm, *(one.pid for one in processes_below(jvm))):
        with contextlib.suppress(OSError):  # it may have ended
            # pid (name) state ...: user, system, and those of the children are the 14th to 17th
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
