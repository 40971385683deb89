"""The exactly-once sink or Spark's own Kafka sink: how many records per second, on the same broker?

    python -m benchmarks.sink [--records 1000000] [--rounds 5] [--targets echoless apache-kafka] [--headers]

One Spark (`local[2]`) writes the same Parquet rows of 100 bytes as a job, through each sink in
turn, to a new topic of three partitions each time; both read the rows alike. Spark's share, the
reading alone, is measured too: rows written to Spark's sink `noop`.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.pairs import in_turn, print_pair
from benchmarks.versus_kafka import KAFKA_JVM
from echoless.pipeline.exactly_once.data_source import register
from echoless.pipeline.kafka_connector import connector_settings
from echoless.pipeline.session import open_session
from tests.spark_proofs.numbered_source import SOURCES, write_source
from tests.support.apache_kafka import ApacheKafka
from tests.support.echoless import Echoless

PARTITIONS = 3
SETTINGS = {
    # One file becomes one Spark partition.
    "spark.sql.files.maxPartitionBytes": "16777216",
    "spark.sql.files.openCostInBytes": "16777216",
    "spark.driver.memory": "2g",
}
HEADERS = (
    "array(named_struct('key', 'trace', 'value', key), "
    "named_struct('key', 'type', 'value', CAST('order' AS BINARY))) AS headers"
)
_numbers = itertools.count()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--headers", action="store_true", help="two for each row")
    parser.add_argument("--targets", nargs="+", default=["echoless", "apache-kafka"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="echoless-sink-") as name:
        directory = Path(name)
        rows_per_file = arguments.records // SOURCES
        records = write_source(directory / "source", batches=1, rows_per_file=rows_per_file)
        spark = open_session(
            "sink", master="local[2]", settings={**SETTINGS, **connector_settings()}
        )
        register(spark)
        rows = spark.read.parquet(str(directory / "source")).select("key", "value", "partition")
        if arguments.headers:
            rows = rows.selectExpr("*", HEADERS)
        read = rows.write.format("noop").mode("overwrite").save
        read()  # the first one warms up
        reading = _seconds(read)
        print(f"reading alone: {records / reading:,.0f} records/s", flush=True)
        for target in arguments.targets:
            compare(rows, directory, target, records, arguments.rounds)


def compare(rows: Any, directory: Path, target: str, records: int, rounds: int) -> None:
    """Runs both sinks in turn on one broker, after a round that does not count."""
    broker = ApacheKafka(directory / target, jvm=KAFKA_JVM) if target == "apache-kafka" else None
    server = broker or Echoless(directory / target)
    server.start()
    try:

        def ours() -> dict[str, float]:
            return {"records/s": records / _write_ours(rows, directory, server.kafka_address)}

        def stock() -> dict[str, float]:
            return {"records/s": records / _write_stock(rows, server.kafka_address)}

        ours()
        stock()
        for name, pair in in_turn(rounds, ours, stock).items():
            print_pair(f"{target}, {name}", pair, "exactly-once", "stock")
    finally:
        server.kill()


def _write_ours(rows: Any, directory: Path, address: str) -> float:
    topic = _new_topic(address)
    options = {"topic": topic, "sinkName": topic, "ledgerLocation": str(directory / "ledger")}
    job = rows.write.format("echoless").options(**options).mode("append")
    return _seconds(job.option("kafka.bootstrap.servers", address).save)


def _write_stock(rows: Any, address: str) -> float:
    job = rows.write.format("kafka").option("topic", _new_topic(address)).mode("append")
    return _seconds(job.option("kafka.bootstrap.servers", address).save)


def _new_topic(address: str) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"sink-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    admin.create_topics([NewTopic(name, num_partitions=PARTITIONS, replication_factor=1)])[
        name
    ].result(60)
    return name


def _seconds(act: Callable[[], object]) -> float:
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
