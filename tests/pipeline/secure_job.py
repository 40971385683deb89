"""One run of everything that Spark does with security options: `python -m tests.pipeline.secure_job DIRECTORY`.

The directory has `options.json`; everything that the run writes goes there. Prints `wrote` for each way that has
written its rows, and the errors of those that were refused.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echoless.client.security_options import java_options
from echoless.pipeline.batches.batch_source import BatchSource
from echoless.pipeline.exactly_once.data_source import register
from echoless.pipeline.exactly_once.sink import ExactlyOnceSink
from echoless.pipeline.kafka_connector import connector_settings, has_jars
from echoless.pipeline.security import security_in
from echoless.pipeline.session import open_session

ROWS = 20


def main(directory: Path) -> None:
    """Writes `ROWS` rows in each way, shows plans, and tries what is refused."""
    options: dict[str, str] = json.loads((directory / "options.json").read_text())
    (directory / "events").mkdir()
    spark = open_session(
        "secure",
        master="local[2]",
        settings={
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (directory / "events").as_uri(),
            "spark.local.dir": str(directory / "local"),
            **(connector_settings() if has_jars() else {}),
        },
    )
    spark.sparkContext.setLogLevel("INFO")
    register(spark)
    spark.dataSource.register(BatchSource)
    security = {name: value for name, value in options.items() if "servers" not in name}
    java = {f"kafka.{name}": value for name, value in java_options(security_in(security)).items()}
    servers = {"kafka.bootstrap.servers": options["kafka.bootstrap.servers"]}
    ledger = str(directory / "ledger")

    def stream(way: str) -> Any:
        source = directory / f"source-{way}"
        source.mkdir()
        (source / "rows.txt").write_text("".join(f"{way}-{row}\n" for row in range(ROWS)))
        rows = spark.readStream.format("text").load(str(source))
        place = str(directory / f"checkpoint-{way}")
        return rows.writeStream.option("checkpointLocation", place).trigger(availableNow=True)

    def by_data_source() -> None:
        writer = stream("data-source").format("echoless").options(**options, topic="orders")
        writer.start().awaitTermination()

    def by_foreach_batch() -> None:
        sink = ExactlyOnceSink({**servers, **java}, name="each", ledger=ledger, topic="orders")
        print(sink.options)
        stream("foreach").foreachBatch(sink).start().awaitTermination()

    def save(topic: str, **changed: str) -> None:
        rows = spark.range(ROWS).selectExpr("concat('job-', id) AS value")
        own = {"topic": topic, "ledgerLocation": ledger, "sinkName": f"job-{topic}"}
        given = {**servers, **java, **own, **changed}
        rows.write.format("echoless").options(**given).mode("append").save()

    def read_headers() -> None:
        rows = spark.read.format("echoless-batches").options(**options, topic="orders").load()
        rows.explain(True)
        assert rows.count() > 0

    def read_records() -> None:
        given = {**servers, **java, "subscribe": "orders", "startingOffsets": "earliest"}
        rows = spark.read.format("kafka").options(**given).load()
        rows.explain(True)
        assert rows.count() == 3 * ROWS

    run("data source", by_data_source)
    run("foreachBatch", by_foreach_batch)
    run("job", lambda: save("orders"))
    run("headers", read_headers)
    if has_jars():
        run("records", read_records)
    Reading(spark, options, {**servers, **java}, directory).run()
    run("forbidden", lambda: save("forbidden"))
    wrong = java["kafka.sasl.jaas.config"].replace('password="', 'password="wrong-')
    run(
        "wrong password",
        lambda: save("orders", **{"kafka.sasl.jaas.config": wrong, "batchId": "1"}),
    )
    spark.stop()


@dataclass
class Reading:
    """The reader, with options of both kinds of names."""

    spark: Any
    options: dict[str, str]
    java_options: dict[str, str]
    directory: Path

    def run(self) -> None:
        """Reads in each way, and what it may not."""
        wrong = {"kafka.sasl.password": "wrong-" + self.options["kafka.sasl.password"]}
        run("topic", self.job)
        run("topic as a stream", self.stream)
        run("forbidden topic", lambda: self.job("forbidden"))
        run("topic, wrong password", lambda: self.job(**wrong))

    def job(self, topic: str = "orders", **changed: str) -> None:
        reader = self.spark.read.format("echoless").options(**self.options, subscribe=topic)
        rows = reader.options(**changed).load()
        rows.explain(True)
        assert rows.count() == 3 * ROWS

    def stream(self) -> None:
        reader = self.spark.readStream.format("echoless").options(**self.java_options)
        rows = reader.options(subscribe="orders", startingOffsets="earliest").load()
        rows.explain(True)
        writer = rows.writeStream.format("memory").queryName("read")
        writer = writer.option("checkpointLocation", str(self.directory / "checkpoint-read"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        query.explain(True)
        assert self.spark.table("read").count() == 3 * ROWS


def run(name: str, work: Callable[[], None]) -> None:
    """Reports the end of one way."""
    try:
        work()
    except Exception:  # noqa: BLE001  it is looked at for secrets
        print(f"refused: {name}")
        traceback.print_exc()
    else:
        print(f"wrote: {name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
