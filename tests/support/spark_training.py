"""A Spark driver that does a little of everything, so that its JVM loads what others will: `python -m tests.support.spark_training`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from echoless.pipeline.session import open_session

_ROWS = 100


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def _count(frame: DataFrame, batch: int) -> None:
    del batch
    frame.groupBy("value").count().collect()


def _work(spark: SparkSession, directory: str) -> None:
    rows = spark.range(0, _ROWS, 1, 2).selectExpr("CAST(id AS STRING) AS value", "id % 7 AS k")
    rows.mapInArrow(_same, rows.schema).write.parquet(f"{directory}/rows")
    read = spark.read.parquet(f"{directory}/rows")
    read.join(read.groupBy("k").count(), "k").orderBy("value").collect()
    stream = spark.readStream.schema(rows.schema).parquet(f"{directory}/rows").writeStream
    checkpointed = stream.option("checkpointLocation", f"{directory}/checkpoint")
    checkpointed.foreachBatch(_count).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        session = open_session("training", master="local[2]")
        _work(session, Path(name).as_uri())
        session.stop()
