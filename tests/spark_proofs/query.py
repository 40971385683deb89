"""The query of a run, in a separate process: `python -m tests.spark_proofs.query JSON`.

Reads the numbered source from the checkpoint on, and ends when all of it was written. Restarted
after any end, it does the rest.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from echoless.pipeline.session import open_session
from tests.spark_proofs import trip_wires
from tests.spark_proofs.numbered_source import SOURCES

SCHEMA: Final = "number long, key binary, value binary, partition int"
STOCK, DATA_SOURCE, FOREACH_BATCH = SINKS = ("kafka", "echoless", "foreach-batch")
"""Spark's own sink; ours as a data source; ours through foreachBatch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything that one process of the query needs. Paths are texts, to pass through JSON."""

    master: str
    sink: str
    bootstrap_servers: str
    topic: str
    source: str
    wires: str
    checkpoint: str
    settings: dict[str, str]
    """Spark's settings."""
    sink_options: dict[str, str]
    """Options by their `kafka.` names."""
    is_random: bool = False
    """Whether each replay has other values after the numbers."""


def run(options: Options) -> None:
    """Returns when everything was written; raises if the query fails."""
    spark = open_session("proof", master=options.master, settings=options.settings)
    rows = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", SOURCES)
        .parquet(options.source)
        .mapInArrow(_rows_of(options), SCHEMA)
        .select("key", "value", "partition")
    )
    query = (
        _into_sink(spark, rows, options)
        .option("checkpointLocation", options.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _rows_of(options: Options) -> Any:
    """The rows; pickled by the name of this function, which the workers import."""
    return partial(_random if options.is_random else _watch, options.wires)


def _watch(wires: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return trip_wires.watch(batches, Path(wires))


def _random(wires: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in _watch(wires, batches):
        values = [value.as_py()[:8] + os.urandom(8) for value in batch.column("value")]
        place = batch.schema.get_field_index("value")
        yield batch.set_column(place, "value", pa.array(values, pa.binary()))


def _into_sink(spark: SparkSession, rows: DataFrame, options: Options) -> DataStreamWriter:
    servers = {"kafka.bootstrap.servers": options.bootstrap_servers, **options.sink_options}
    if options.sink == STOCK:
        return rows.writeStream.format("kafka").options(topic=options.topic, **servers)
    from echoless.spark import ExactlyOnceSink, register

    if options.sink == DATA_SOURCE:
        register(spark)
        return rows.writeStream.format("echoless").options(
            topic=options.topic, sinkName="proof", **servers
        )
    if "ledgerLocation" not in servers:
        servers["ledgerLocation"] = f"{options.checkpoint}/echoless-ledger"
    sink = ExactlyOnceSink(servers, name="proof", topic=options.topic)
    return rows.writeStream.foreachBatch(sink)


if __name__ == "__main__":
    run(Options(**json.loads(sys.argv[1])))
    sys.exit(0)
