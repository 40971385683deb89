"""Small batches of a stream: what does each cost through the exactly-once sink, and through Spark's own?

    python -m benchmarks.micro_batches [--rows 150] [--batches 40] [--rounds 3] [--partitions 1]

One Spark (`local[2]`) streams Parquet files of so many rows, a file for each Spark partition and as many for a
batch, into one Echoless, through each sink in turn. *ms* is the median of what Spark says a batch took
(`triggerExecution`), *CPU ms* the processor time of the JVM and its Python processes for each batch. What Spark takes
without a sink is printed too: the same stream into `noop`, and through Python code that reads the rows and stores nothing,
once as a data source and once within `foreachBatch`, compared with Spark's own sink as ours are.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, WriterCommitMessage
from pyspark.sql.types import StructType

from benchmarks.pairs import pairs_of, print_pair, several_in_turn
from echoless.pipeline.exactly_once.data_source import register
from echoless.pipeline.exactly_once.sink import ExactlyOnceSink
from echoless.pipeline.exactly_once.stream_writer import StreamArrowWriter
from echoless.pipeline.frozen_imports import freeze_imports
from echoless.pipeline.kafka_connector import connector_settings
from echoless.pipeline.session import open_session
from tests.support.echoless import Echoless
from tests.support.process_tree import processes_below

SCHEMA = "key binary, value binary"
_TICKS_PER_MS = os.sysconf("SC_CLK_TCK") / 1000
_numbers = itertools.count()

Start = Callable[[Any, str], Any]
"""Gives a stream's writer a sink, with the name of its topic."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=150, help="of each file")
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--partitions", type=int, default=1, help="files of each batch")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="echoless-micro-") as name:
        directory = Path(name)
        write_files(directory / "source", arguments)
        spark = open_session("micro", master="local[2]", settings=connector_settings())
        register(spark)
        broker = Echoless(directory / "broker")
        broker.start()
        try:
            measure(spark, directory, broker.kafka_address, arguments)
        finally:
            broker.kill()


def write_files(directory: Path, arguments: argparse.Namespace) -> None:
    directory.mkdir()
    for number in range(arguments.batches * arguments.partitions):
        keys = [b"%d" % key for key in range(arguments.rows)]
        values = [np.random.default_rng(number).bytes(100)] * arguments.rows
        path = directory / f"{number:06}.parquet"
        pq.write_table(pa.table({"key": keys, "value": values}), path)
        os.utime(path, (1_763_685_000 + number,) * 2)  # Spark takes the oldest files first


def measure(spark: Any, directory: Path, address: str, arguments: argparse.Namespace) -> None:
    def run(start: Start) -> dict[str, float]:
        number = next(_numbers)
        checkpoint = str(directory / f"checkpoint-{number}")
        rows = (
            spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", arguments.partitions)
            .parquet(str(directory / "source"))
        )
        began = processor_ms()
        writer = start(rows.writeStream, f"micro-{number}")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        batches = [one["durationMs"]["triggerExecution"] for one in query.recentProgress]
        spent = processor_ms() - began
        return {"ms": statistics.median(batches), "CPU ms": spent / arguments.batches}

    spark.dataSource.register(PythonAlone)
    sinks = sinks_of(address, str(directory / "ledger"))
    for start in sinks.values():
        run(start)
    for name, figure in run(sinks["noop"]).items():
        print(f"noop, {name:38} {figure:11.2f}", flush=True)
    for kind in ("data source", "foreachBatch"):
        compared = (sinks[kind], sinks[f"Python {kind}"], sinks["stock"])
        found = several_in_turn(arguments.rounds, [partial(run, start) for start in compared])
        for label, figures in (("exactly-once", found[0]), ("no sink", found[1])):
            for name, pair in pairs_of(figures, found[2]).items():
                print_pair(f"{kind}, {name}", pair, label, "stock")


def sinks_of(address: str, ledger: str) -> dict[str, Start]:
    """The beginning of a query with each sink, or without one."""
    options = {"kafka.bootstrap.servers": address}

    def ours_for_each(writer: Any, topic: str) -> Any:
        return writer.foreachBatch(ExactlyOnceSink(address, name=topic, ledger=ledger, topic=topic))

    return {
        "noop": lambda writer, _: writer.format("noop"),
        "stock": lambda writer, topic: writer.format("kafka").options(topic=topic, **options),
        "data source": lambda writer, topic: writer.format("echoless").options(
            topic=topic, **options
        ),
        "foreachBatch": ours_for_each,
        "Python data source": lambda writer, _: writer.format(PythonAlone.name()),
        "Python foreachBatch": lambda writer, _: writer.foreachBatch(count_in_python),
    }


def count_in_python(frame: Any, _batch_id: int) -> None:
    """Does with a batch what any sink in Python does: a function gets the rows, and the driver its report."""
    written = frame.mapInArrow(counted, "rows long")
    written.rdd.getNumPartitions()
    written.collect()


def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist([{"rows": sum(batch.num_rows for batch in batches)}])
    freeze_imports("write_partition")


class PythonAlone(DataSource):
    """A data source that reads the rows and stores nothing, in processes that collect as little garbage as ours."""

    @classmethod
    def name(cls) -> str:
        return "python-alone"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamArrowWriter:  # noqa: ARG002, N802
        freeze_imports("streamWriter")
        return Reading()


class Reading(StreamArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        freeze_imports("write_partition")
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        freeze_imports("commit")


def processor_ms() -> float:
    """The processor time of this process and all below it, with those that have ended."""
    pids = [os.getpid(), *(one.pid for one in processes_below(os.getpid()))]
    return sum(_ticks(pid) for pid in pids) / _TICKS_PER_MS


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0
    return sum(int(field) for field in fields[11:15])


if __name__ == "__main__":
    main()
