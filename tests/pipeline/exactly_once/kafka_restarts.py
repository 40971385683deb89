"""Streams from Spark's own Kafka source that die and are restarted, when it numbers the tasks of a batch otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.errors import PySparkException

from echoless.client.cluster import parse_addresses
from echoless.client.pipelined_connection import PipelinedConnection
from echoless.pipeline.batches.partition_leader import LATEST, PartitionLeader
from echoless.pipeline.exactly_once.data_source import register
from echoless.pipeline.exactly_once.read_back import split
from echoless.pipeline.exactly_once.sink import ExactlyOnceSink
from echoless.protocol.records import read_records
from tests.pipeline.exactly_once.kafka_numbering import first_order, order_after_restart
from tests.pipeline.exactly_once.text_stream import DATA_SOURCE

ROWS = 40
"""Rows of each partition."""
ROWS_PER_BATCH = 10
"""Rows of each partition in a batch."""
OUT_PARTITIONS = 3


class Source(NamedTuple):
    """Topics with so many partitions each, and the topic that they are copied to."""

    topics: tuple[str, ...]
    partitions: int
    out: str

    @property
    def places(self) -> list[tuple[str, int]]:
        return [(topic, index) for topic in self.topics for index in range(self.partitions)]

    @property
    def is_numbered_anew(self) -> bool:
        """Whether Spark gives its tasks other numbers after a restart."""
        return first_order(self.places) != order_after_restart(self.places)


class Restarts:
    """A stream from a source's topics to another, by one of the two ways."""

    def __init__(self, spark: Any, address: str, directory: Path, way: str, source: Source) -> None:
        self._spark = spark
        self._address = address
        self._directory = directory
        self._way = way
        self._source = source

    def play(self) -> str | None:
        """Runs it to its end, with deaths wherever a batch can be; returns what is wrong.

        After the tasks that could begin before another one failed, after a whole batch, and after the end.
        """
        asyncio.run(_create(self._address, self._source))
        values = self._produce()
        with suppress(PySparkException):
            self._run(dies_at=self._source.places[-1])
            return "the task that was to die did not"
        for _ in range(2):  # the data source may ask for a second start
            with suppress(PySparkException):
                self._run(last=True)
        for _ in range(2):
            self._run()
            stored = self._stored()
            if stored != values:
                missing, more = set(values) - set(stored), len(stored) - len(set(stored))
                return f"{self._source}, {self._way}: {len(missing)} rows are missing, {more} twice"
            self._forget_commit()
        return None

    def _produce(self) -> list[str]:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._address})
        values = []
        for topic, index in self._source.places:
            for row in range(ROWS):
                values.append(f"{topic}:{index}:{row:05}")
                producer.produce(topic, key=f"k{row % 11}", value=values[-1], partition=index)
        producer.flush(60)
        return sorted(values)

    def _run(self, *, dies_at: tuple[str, int] | None = None, last: bool = False) -> None:
        """Runs the stream. `dies_at`: whose task fails in batch 1, always; `last`: the driver dies after batch 1."""
        source = self._spark.readStream.format("kafka").options(
            **{
                "kafka.bootstrap.servers": self._address,
                "subscribe": ",".join(self._source.topics),
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(ROWS_PER_BATCH * len(self._source.places)),
            }
        )
        rows = source.load().selectExpr("key", "value")
        if dies_at is not None:
            rows = rows.mapInArrow(_Dying(*dies_at), rows.schema)
        writer = rows.writeStream.option("checkpointLocation", str(self._directory / "checkpoint"))
        self._to(writer.trigger(availableNow=True), last).start().awaitTermination()

    def _to(self, writer: Any, last: bool) -> Any:
        if self._way == DATA_SOURCE:
            register(self._spark)
            options = {"kafka.bootstrap.servers": self._address, "topic": self._source.out}
            return writer.format("echoless").options(**options)
        ledger = str(self._directory / "ledger")
        sink = ExactlyOnceSink(self._address, name="copy", ledger=ledger, topic=self._source.out)

        def write(frame: Any, batch_id: int) -> None:
            sink(frame, batch_id)
            if last and batch_id == 1:
                raise RuntimeError("the driver dies here")

        return writer.foreachBatch(write)

    def _forget_commit(self) -> None:
        """Removes the last commit, as if the driver had died right after the batch was written."""
        commits = self._directory / "checkpoint" / "commits"
        newest = max(int(path.name) for path in commits.glob("[0-9]*"))
        (commits / str(newest)).unlink()
        (commits / f".{newest}.crc").unlink()

    def _stored(self) -> list[str]:
        values: list[str] = []
        for index in range(OUT_PARTITIONS):
            with PartitionLeader(self._address, self._source.out, index) as leader:
                offset, end = 0, leader.ask_offset(LATEST)
                while offset < end:
                    for header, batch in split(leader.fetch(offset)):
                        values += [str(one.value or b"", "ascii") for one in read_records(batch)]
                        offset = header.next_offset
        return sorted(values)


class _Dying:
    """Passes rows on, and fails at the first one of batch 1 that comes from a partition."""

    def __init__(self, topic: str, partition: int) -> None:
        self._place = [topic, str(partition)]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            *place, number = batch.column("value")[0].as_py().decode().split(":")
            if place == self._place and int(number) >= ROWS_PER_BATCH:
                raise RuntimeError("the task dies here")
            yield batch


async def _create(address: str, source: Source) -> None:
    counts = {**dict.fromkeys(source.topics, source.partitions), source.out: OUT_PARTITIONS}
    topics = [
        {
            "name": topic,
            "num_partitions": count,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for topic, count in counts.items()
    ]
    connection = await PipelinedConnection.open(*parse_addresses(address)[0], 30)
    try:
        fields = {"topics": topics, "timeout": 30_000, "validate_only": False}
        answer = await connection.send("create_topics", fields)
    finally:
        await connection.close()
    assert all(one.error_code.value == 0 for one in answer.topics), answer
