"""Streams from Spark's own Kafka source, which numbers the tasks of a batch otherwise after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from echoless.pipeline.exactly_once import ExactlyOnceSink, register
from tests.pipeline.exactly_once.broker_thread import BrokerThread
from tests.toolchain import require

pytestmark = pytest.mark.spark

SOURCE = "small"
"""A name whose partitions are numbered anew, if there are three or four."""
ROWS = 400
PER_TRIGGER = 100
OUT = "out"
OUT_PARTITIONS = 3


class Copy:
    """A stream from one topic to another, by one of the two ways."""

    def __init__(self, spark: Any, broker: BrokerThread, directory: Path, way: str) -> None:
        self.spark = spark
        self.broker = broker
        self.directory = directory
        self.way = way

    def run(self, *, dies_at: int | None = None, last: bool = False) -> None:
        """Runs the stream; `dies_at`: the source partition whose task fails in batch 1, with all its attempts.

        `last`: the driver dies after batch 1 was written.
        """
        source = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.broker.address)
            .option("subscribe", SOURCE)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", PER_TRIGGER)
        )
        rows = source.load().selectExpr("key", "value")
        if dies_at is not None:
            rows = rows.mapInArrow(Dying(dies_at), rows.schema)
        writer = rows.writeStream.option("checkpointLocation", str(self.directory / "checkpoint"))
        self._to(writer.trigger(availableNow=True), last).start().awaitTermination()

    def forget_commit(self) -> None:
        """Removes the last commit, as if the driver had died right after the batch was written."""
        commits = self.directory / "checkpoint" / "commits"
        newest = max(int(path.name) for path in commits.glob("[0-9]*"))
        (commits / str(newest)).unlink()
        (commits / f".{newest}.crc").unlink()

    def stored(self) -> list[str]:
        return sorted(str(v, "ascii") for v in self.broker.values(OUT, OUT_PARTITIONS) if v)

    def _to(self, writer: Any, last: bool) -> Any:
        if self.way == "data source":
            register(self.spark)
            options = {"kafka.bootstrap.servers": self.broker.address, "topic": OUT}
            return writer.format("echoless").options(**options)
        sink = ExactlyOnceSink(
            self.broker.address, name="copy", ledger=str(self.directory / "ledger"), topic=OUT
        )

        def write(frame: Any, batch_id: int) -> None:
            sink(frame, batch_id)
            if last and batch_id == 1:
                raise RuntimeError("the driver dies here")

        return writer.foreachBatch(write)


class Dying:
    """Passes rows on, and fails at the first one of batch 1 that comes from a source partition."""

    def __init__(self, partition: int) -> None:
        self.partition = partition

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            name, number = batch.column("value")[0].as_py().decode().split(":")
            if name == str(self.partition) and int(number) >= 10:
                raise RuntimeError("the task dies here")
            yield batch


def produce(broker: BrokerThread, partitions: int) -> list[str]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.address})
    values = [f"{row % partitions}:{row // partitions:05}" for row in range(ROWS)]
    for row, value in enumerate(values):
        producer.produce(SOURCE, key=f"k{row % 11}", value=value, partition=row % partitions)
    producer.flush(30)
    return sorted(values)


@pytest.mark.parametrize(
    ("way", "partitions"), [("foreachBatch", 3), ("data source", 3), ("data source", 4)]
)
def test_a_stream_from_kafka_is_restarted_wherever_it_died(spark, tmp_path, way, partitions):
    """After a whole batch, and after the tasks that could begin before another one failed."""
    require("java", "spark-kafka")
    with BrokerThread(tmp_path / "broker", num_partitions=OUT_PARTITIONS) as broker:
        broker.create(SOURCE, partitions)
        values = produce(broker, partitions)
        copy = Copy(spark, broker, tmp_path, way)
        with pytest.raises(PySparkException):
            copy.run(dies_at=partitions - 1)
        for _ in range(2):  # the data source may ask for a second start
            with suppress(PySparkException):
                copy.run(last=True)
        copy.run()
        assert copy.stored() == values
        copy.forget_commit()
        copy.run()
        assert copy.stored() == values
