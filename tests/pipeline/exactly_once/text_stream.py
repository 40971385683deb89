"""A stream of text files into the topic, by either of the sink's two ways."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from echoless.pipeline.exactly_once.batch_metrics import BatchMetrics
from echoless.pipeline.exactly_once.data_source import register
from echoless.pipeline.exactly_once.ledger_metrics import read_metrics
from echoless.pipeline.exactly_once.sink import ExactlyOnceSink
from tests.pipeline.exactly_once.attempts import PARTITIONS, TOPIC
from tests.pipeline.exactly_once.broker_thread import BrokerThread
from tests.pipeline.stores.servers import Store

FILE_ROWS = 500
NAME = "orders"
FOREACH_BATCH, DATA_SOURCE = WAYS = ("foreachBatch", "data source")


class Pipeline:
    """A stream from text files to the topic, by one of the two ways."""

    def __init__(
        self,
        spark: Any,
        broker: BrokerThread,
        directory: Path,
        way: str,
        store: Store | None = None,
    ) -> None:
        """`store`: the place of the ledger; None: a directory, or the checkpoint if the way is the data source."""
        self.spark = spark
        self.broker = broker
        self.source = directory / "source"
        self.checkpoint = directory / "checkpoint"
        self.ledger = directory / "ledger"
        self.way = way
        self.store = store
        self.fails_first_attempts = False
        self.options: dict[str, str] = {}
        self.source.mkdir()
        self.files = 0

    def add_file(self) -> None:
        name = f"{self.files:04}"
        lines = "".join(f"{name}-{row:06}\n" for row in range(FILE_ROWS))
        (self.source / f".{name}").write_text(lines)
        (self.source / f".{name}").rename(self.source / f"{name}.txt")
        self.files += 1

    def run(self) -> None:
        """Everything that there is, in one batch; raises what the query ended with."""
        lines = self.spark.readStream.format("text").load(str(self.source))
        rows = lines.selectExpr("value", "substring(value, 9) AS key")
        if self.fails_first_attempts:
            rows = rows.mapInArrow(_fail_first_attempt, rows.schema)
        writer = rows.writeStream.option("checkpointLocation", str(self.checkpoint))
        self._to(writer.trigger(availableNow=True)).start().awaitTermination()

    def forget_commit(self) -> None:
        """Removes the commit, as if the driver had died right after the batch was written."""
        commits = self.checkpoint / "commits"
        newest = max(int(path.name) for path in commits.glob("[0-9]*"))
        (commits / str(newest)).unlink()
        (commits / f".{newest}.crc").unlink()

    def stored(self) -> list[str]:
        return sorted(str(v, "ascii") for v in self.broker.values(TOPIC, PARTITIONS) if v)

    def expected(self) -> list[str]:
        numbers = range(self.files)
        return [f"{number:04}-{row:06}" for number in numbers for row in range(FILE_ROWS)]

    def _to(self, writer: Any) -> Any:
        options = {"kafka.bootstrap.servers": self.broker.address, **self.options}
        if self.store is not None:
            options |= {f"ledger.{name}": value for name, value in self.store.options.items()}
        if self.way == DATA_SOURCE:
            register(self.spark)
            if self.store is not None:
                options |= {"sinkName": NAME, "ledgerLocation": self.store.uri}
            return writer.format("echoless").options(topic=TOPIC, **options)
        ledger = str(self.ledger) if self.store is None else self.store.uri
        self.sink = ExactlyOnceSink(options, name=NAME, ledger=ledger, topic=TOPIC)
        return writer.foreachBatch(self.sink)

    def metrics(self) -> list[BatchMetrics]:
        """Reads the figures that the ledger has."""
        if self.way == DATA_SOURCE:
            return read_metrics(str(self.checkpoint / "echoless-ledger"))
        return read_metrics(str(self.ledger), NAME)


def _fail_first_attempt(batches: Iterator[Any]) -> Iterator[Any]:
    context = TaskContext.get()
    assert context is not None
    yield from batches
    if context.attemptNumber() == 0:
        raise RuntimeError("the first attempt fails, when its rows are on their way")
