"""Sink and reader through Spark Connect, with a server of its own: `python -m tests.pipeline.connect_job ADDRESS DIRECTORY`.

Prints `wrote` for each way that has written (or read) its rows, and the errors of those that were refused.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from echoless.pipeline.exactly_once.data_source import register
from echoless.pipeline.exactly_once.sink import ExactlyOnceSink
from tests.pipeline.secure_job import run

ROWS = 20
_START_TIMEOUT_S: Final = 300
_QUERY_S: Final = 300


def main(address: str, directory: Path) -> None:
    """Writes `ROWS` rows in each way that there is."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    register(spark)
    options = {"kafka.bootstrap.servers": address, "topic": "orders"}
    own = {**options, "sinkName": "job", "ledgerLocation": str(directory / "ledger")}

    def stream(way: str) -> Any:
        source = directory / way
        source.mkdir()
        (source / "rows.txt").write_text("".join(f"{way}-{row}\n" for row in range(ROWS)))
        rows = spark.readStream.format("text").load(str(source))
        place = str(directory / f"checkpoint-{way}")
        return rows.writeStream.option("checkpointLocation", place).trigger(availableNow=True)

    def save() -> None:
        for _ in range(2):
            rows = spark.range(ROWS).selectExpr("concat('job-', id) AS value")
            rows.write.format("echoless").options(**own).mode("append").save()

    def save_each(frame: Any, batch_id: int) -> None:
        register(frame.sparkSession)
        writer = frame.write.format("echoless").options(**own, batchId=str(batch_id))
        writer.option("sinkName", "each").mode("append").save()

    run("stream", lambda: finish(stream("stream").format("echoless").options(**options)))
    run("job", save)
    run("each batch as a job", lambda: finish(stream("each").foreachBatch(save_each)))
    reading = {"kafka.bootstrap.servers": address, "subscribe": "orders"}

    def read_job() -> None:
        rows = spark.read.format("echoless").options(**reading, minPartitions="7").load()
        found = {(row.partition, row.offset) for row in rows.collect()}
        assert len(found) == rows.count() == 3 * ROWS

    def read_stream() -> None:
        reader = spark.readStream.format("echoless").options(**reading)
        rows = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger="25").load()
        writer = rows.select("value").writeStream.format("echoless")
        writer = writer.options(**{**options, "topic": "copy"}).trigger(availableNow=True)
        finish(writer.option("checkpointLocation", str(directory / "checkpoint-copy")))

    run("read as a job", read_job)
    run("read as a stream", read_stream)
    sink = ExactlyOnceSink(options, name="sink", ledger=str(directory / "ledger"))
    run("ExactlyOnceSink", lambda: finish(stream("sink").foreachBatch(sink)))
    spark.stop()


def finish(writer: Any) -> None:
    """Runs a stream to its end."""
    query = start(writer)
    assert query.awaitTermination(_QUERY_S), "the query does not end"
    error = query.exception()
    query.stop()
    if error is not None:
        raise error


def start(writer: Any) -> Any:
    """Starts a stream, again while Spark gives the start up by its own clock.

    The server gives the Python process for `foreachBatch` ten seconds to start, which no setting changes
    (`PythonWorkerFactory.createSimpleWorker`). On two busy cores its imports alone can need longer. No code of
    Echoless has run then, and the query does not exist yet.
    """
    give_up = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            return writer.start()
        except PySparkException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
            if time.monotonic() > give_up:
                raise


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
