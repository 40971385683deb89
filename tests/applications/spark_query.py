"""Spark's driver, in a process of its own: `python -m tests.applications.spark_query JSON`.

Its queries read by name and by pattern, each into a topic named after it, through the exactly-once sink. The
first life stops in the midst of a batch whose rows are stored already, until it is killed. The next one goes
on from the checkpoints until the file `finish` is there, and then reads everything once more without a stream.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from echoless.pipeline.exactly_once.sink import ExactlyOnceSink
from echoless.pipeline.streaming.session import open_kafka_session

NAMED: Final = "by-name"
PATTERN: Final = "by-pattern"
MEMBER: Final = "as-member"
"""The driver finds its partitions as the member of a group, which Spark calls deprecated."""
QUERIES: Final = (NAMED, PATTERN, MEMBER)
HELD_BATCH: Final = 1
_DEPRECATED: Final = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
_RECORDS_PER_BATCH: Final = 100
_SMALL: Final = {"spark.driver.memory": "512m"}
_LOOK_S: Final = 1


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that the driver needs; paths are texts, to pass through JSON."""

    bootstrap: str
    directory: str
    """Checkpoints, and the files by which the test and the driver tell each other how far they are."""
    topics: str
    pattern: str

    def as_argument(self) -> str:
        return json.dumps(asdict(self))

    @property
    def finish(self) -> Path:
        """The test creates it when the queries may end."""
        return Path(self.directory, "finish")

    @property
    def read(self) -> Path:
        """Number of rows of each query, as the driver reads them without a stream."""
        return Path(self.directory, "read.json")

    def held(self, query: str) -> Path:
        """Created when the rows of the batch that waits to be killed are stored."""
        return Path(self.directory, f"{query}.held")

    def source(self, query: str) -> dict[str, str]:
        """The options of Spark's Kafka source, which batches have too."""
        by = {"subscribe": self.topics} if query == NAMED else {"subscribePattern": self.pattern}
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.metadata.max.age.ms": "500",  # a member hears of new topics by it
            "groupIdPrefix": query,
            "startingOffsets": "earliest",
            **by,
        }


def run(options: Options) -> None:
    """Returns when the test has seen enough; raises if a query fails."""
    spark = open_kafka_session("subscriptions", master="local[2]", settings=_SMALL)
    queries = [_start(spark, options, query) for query in QUERIES]
    while not options.finish.exists():
        for query in queries:
            query.awaitTermination(_LOOK_S)
    for query in queries:
        query.stop()
    counts = {query: _count(spark, options, query) for query in QUERIES}
    partial = options.read.with_suffix(".partial")
    partial.write_text(json.dumps(counts))
    partial.rename(options.read)


def _start(spark: SparkSession, options: Options, query: str) -> StreamingQuery:
    spark.conf.set(_DEPRECATED, query == MEMBER)
    source = spark.readStream.format("kafka").options(
        **options.source(query), maxOffsetsPerTrigger=str(_RECORDS_PER_BATCH)
    )
    return (
        source.load()
        .selectExpr("concat(topic, '/', partition, '/', offset) as key", "value")
        .writeStream.foreachBatch(_write(options, query))
        .option("checkpointLocation", f"{options.directory}/{query}")
        .trigger(processingTime="200 milliseconds")
        .start()
    )


def _write(options: Options, query: str) -> Callable[[DataFrame, int], None]:
    """Return what stores a batch, and in the first life holds one before Spark marks it as done."""
    ledger = f"{options.directory}/{query}/ledger"
    sink = ExactlyOnceSink(
        options.bootstrap, name=query, ledger=ledger, topic=query, sort_within_partitions=True
    )

    def write(frame: DataFrame, batch: int) -> None:
        sink(frame.coalesce(1), batch)  # Spark numbers a member's partitions anew in each life
        if batch == HELD_BATCH and not options.held(query).exists():
            options.held(query).touch()
            threading.Event().wait()

    return write


def _count(spark: SparkSession, options: Options, query: str) -> int:
    spark.conf.set(_DEPRECATED, query == MEMBER)
    return spark.read.format("kafka").options(**options.source(query)).load().count()


if __name__ == "__main__":
    run(Options(**json.loads(sys.argv[1])))
