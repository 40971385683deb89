"""The mirror's stream, in a Spark that the tests share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from echoless.client.connection import BrokerConnection
from tests.pipeline.exactly_once.broker_thread import BrokerThread
from tests.pipeline.mirror.source_records import PARTITIONS, produce
from tests.pipeline.stored_records import stored_records
from tests.support.apache_kafka import ApacheKafka
from tests.toolchain import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from echoless.pipeline.mirror.mirror import MirrorPlan

pytestmark = pytest.mark.spark


@pytest.fixture
def source(tmp_path: Path) -> Iterator[str]:
    require("java", "spark-kafka")
    with BrokerThread(tmp_path / "source", num_partitions=PARTITIONS) as broker:
        yield broker.address


@pytest.fixture
def target(tmp_path: Path) -> Iterator[str]:
    with BrokerThread(tmp_path / "target", num_partitions=1) as broker:
        yield broker.address


def _plan(source: str, directory: Path) -> MirrorPlan:
    from echoless.pipeline.mirror.mirror import MirrorPlan

    return MirrorPlan(
        source=source, topics=("orders",), checkpoint=str(directory / "checkpoint"), once=True
    )


def _mirror(spark: SparkSession, plan: MirrorPlan, target: str) -> None:
    """Mirrors until everything present is copied."""
    from echoless.pipeline.exactly_once.sink import ExactlyOnceSink
    from echoless.pipeline.mirror.clusters import TargetTopics
    from echoless.pipeline.mirror.mirror import Preparation, read_source, write_stream
    from echoless.pipeline.mirror.offsets import lag_of
    from echoless.pipeline.streaming.counted_writer import CountedWriter
    from echoless.pipeline.streaming.figures import StreamFigures
    from echoless.pipeline.streaming.run import StreamRun
    from echoless.pipeline.streaming.stop_request import StopRequest

    sink = ExactlyOnceSink(target, name="mirror", ledger=f"{plan.checkpoint}/ledger")
    figures = StreamFigures()
    run = StreamRun(
        Preparation(plan, TargetTopics(target, creates=True).ensure),
        CountedWriter(sink.write, figures),
        StopRequest(),
        figures=figures,
        on_tick=lambda: None,
        lag_of=lag_of,
    )
    run.run(write_stream(read_source(spark, plan), plan))


def test_a_source_that_changes_its_shape_is_mirrored(
    spark: SparkSession, source: str, target: str, tmp_path: Path
) -> None:
    """Records deleted before the first run are not missed; a new partition gets one in the target."""
    produce(source, "orders", 900)
    _delete_records(source, below=100)
    plan = _plan(source, tmp_path)
    _mirror(spark, plan, target)
    _add_partition(source, PARTITIONS + 1)
    _produce_to(source, PARTITIONS, 50)
    produce(source, "orders", 300, first=900)
    _mirror(spark, plan, target)
    for partition in range(PARTITIONS + 1):
        wanted = stored_records(source, "orders", partition)
        stored = stored_records(target, "orders", partition)
        assert [one._replace(offset=0) for one in stored] == [
            one._replace(offset=0) for one in wanted
        ]


def _delete_records(address: str, *, below: int) -> None:
    parts = [{"partition_index": index, "offset": below} for index in range(PARTITIONS)]
    fields = {"topics": [{"name": "orders", "partitions": parts}], "timeout": 10_000}
    with _connection(address) as connection:
        connection.request("delete_records", fields)


def _add_partition(address: str, count: int) -> None:
    row = {"name": "orders", "count": count, "assignments": None}
    with _connection(address) as connection:
        connection.request(
            "create_partitions", {"topics": [row], "timeout": 10_000, "validate_only": False}
        )


def _produce_to(address: str, partition: int, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address})
    for number in range(count):
        producer.produce("orders", b"%d" % number, partition=partition)
    assert producer.flush(30) == 0


def _connection(address: str) -> BrokerConnection:
    host, _, port = address.rpartition(":")
    return BrokerConnection.open(host, int(port))


def test_attempts_at_a_batch_divide_it_alike(spark: SparkSession) -> None:
    """However the source numbers its tasks, a partition's records are in one place, by offset."""
    from echoless.pipeline.mirror.arrangement import arrange

    rows = [
        (topic, partition, offset)
        for topic, partition in (("a", 0), ("a", 2), ("b", 0))
        for offset in range(5)
    ]
    offsets = {"b": {0: 5}, "a": {0: 5, 1: 0, 2: 5}}
    places = []
    for attempt in (rows, rows[::-1]):
        frame = spark.createDataFrame(attempt, "topic string, partition int, offset long")
        divided = arrange(frame.repartition(3, "topic"), offsets).rdd.glom().collect()
        places.append([[tuple(row) for row in part] for part in divided])
    assert places[0] == places[1] == [rows[:5], [], rows[5:10], rows[10:]]


@pytest.mark.kafka
def test_what_a_transaction_gave_up_is_not_mirrored(
    spark: SparkSession, target: str, tmp_path: Path
) -> None:
    """Apache Kafka's markers and aborted records leave gaps in the offsets, and no gap in the target."""
    require("java", "kafka", "spark-kafka")
    kafka = ApacheKafka(tmp_path / "kafka", {"num.partitions": "1"})
    kafka.start()
    try:
        for is_committed in (True, False, True):
            _transaction(kafka.kafka_address, is_committed=is_committed)
        plan = replace(_plan(kafka.kafka_address, tmp_path), batch_records=150)
        _mirror(spark, plan, target)
    finally:
        kafka.kill()
    values = [one.value for one in stored_records(target, "orders", 0)]
    assert values == 2 * [b"True %d" % number for number in range(100)]


def _transaction(address: str, *, is_committed: bool) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "transactional.id": "t"})
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(100):
        producer.produce("orders", f"{is_committed} {number}".encode(), partition=0)
    producer.flush()
    if is_committed:
        producer.commit_transaction()
    else:
        producer.abort_transaction()
