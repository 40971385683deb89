"""Streams from the reader under a real Spark: admission control, restarts, the reader before the sink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from echoless.pipeline.exactly_once.data_source import register
from echoless.pipeline.reading.spark_admission import has_admission_control
from tests.pipeline.exactly_once.broker_thread import BrokerThread
from tests.pipeline.reading.written import TOPIC, write

pytestmark = pytest.mark.spark

_COPY = "copy"


class Copying:
    """A stream from the topic to its copy, through the reader and the sink."""

    def __init__(self, spark: Any, broker: BrokerThread, directory: Path, **options: str) -> None:
        register(spark)
        self._spark = spark
        self._broker = broker
        self._checkpoint = directory / "checkpoint"
        self._servers = {"kafka.bootstrap.servers": broker.address}
        self._options = {"subscribe": TOPIC, "startingOffsets": "earliest", **options}

    def run(self, **trigger: Any) -> Any:
        """Reads all that is there; returns the query."""
        stream = self._spark.readStream.format("echoless")
        frame = stream.options(**self._servers, **self._options).load()
        rows = frame.select("key", "value", "headers", "partition", "timestamp")
        writer = rows.writeStream.format("echoless").options(**self._servers, topic=_COPY)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        query = writer.trigger(**(trigger or {"availableNow": True})).start()
        assert query.awaitTermination(120)
        return query

    def forget_commit(self) -> None:
        """Removes the last commit, as if the driver had died before it wrote it."""
        commits = self._checkpoint / "commits"
        newest = max(int(path.name) for path in commits.glob("[0-9]*"))
        (commits / str(newest)).unlink()
        (commits / f".{newest}.crc").unlink()

    def check(self) -> None:
        """Each record is in the copy once, in its partition and in order."""
        for partition in range(3):
            source = [one[1:] for one in self._broker.read(TOPIC, partition)]
            assert [one[1:] for one in self._broker.read(_COPY, partition)] == source


def test_a_restarted_copy_has_each_record_once(spark, broker, tmp_path):
    """Micro-batches of limited size, one that runs again, new records, and more of them than the limit."""
    broker.create(TOPIC, 3)
    broker.create(_COPY, 3)
    for partition in range(3):
        write(broker.address, partition, 100 * (partition + 1), codec="lz4")
    limit = {"maxOffsetsPerTrigger": "250"} if has_admission_control else {}
    copying = Copying(spark, broker, tmp_path, includeHeaders="true", **limit)
    progress = copying.run().recentProgress
    sizes = [one["numInputRows"] for one in progress if one["numInputRows"]]
    assert sizes == ([249, 249, 102] if has_admission_control else [600])
    copying.check()
    copying.forget_commit()
    write(broker.address, 1, 50, first=500)
    if not has_admission_control:
        copying.run()  # `availableNow` is a single micro-batch there, and this one ran before
    last = copying.run().recentProgress[-1]
    copying.check()
    source = last["sources"][0]
    assert last["numInputRows"] == 50
    # Before 4.2 a query's progress has offsets as Python prints them.
    for name in ("endOffset", "latestOffset") if has_admission_control else ():
        assert json.loads(source[name])[TOPIC] == {"0": 100, "1": 250, "2": 300}


def test_a_topic_created_again_ends_the_query(spark, broker, tmp_path):
    """The error says so; Spark's source would read on in the middle of the new topic."""
    broker.create(TOPIC, 3)
    broker.create(_COPY, 3)
    write(broker.address, 0, 10)
    copying = Copying(spark, broker, tmp_path, includeHeaders="true")
    copying.run()
    broker.delete_topic(TOPIC)
    broker.create(TOPIC, 3)
    write(broker.address, 0, 20)
    with pytest.raises(PySparkException, match="topic orders was deleted and created again"):
        copying.run()


@pytest.mark.parametrize("is_strict", ["true", "false"])
def test_a_topic_created_again_under_a_running_query(spark, broker, tmp_path, is_strict):
    """The query ends and says why; without failOnDataLoss the new topic is read from its start."""
    register(spark)
    broker.create(TOPIC, 2)
    write(broker.address, 0, 10)
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": TOPIC}
    options |= {"startingOffsets": "earliest", "failOnDataLoss": is_strict}
    options["fetchOffset.retryIntervalMs"] = "10"
    found = []

    def take(frame, _):
        found.extend(row.offset for row in frame.collect())

    frame = spark.readStream.format("echoless").options(**options).load()
    writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.foreachBatch(take).start()
    try:
        query.processAllAvailable()
        assert found == list(range(10))
        broker.delete_topic(TOPIC)
        broker.create(TOPIC, 2)
        write(broker.address, 0, 15)
        if is_strict == "true":
            with pytest.raises(PySparkException, match=r"is gone|was deleted and created again"):
                query.processAllAvailable()
        else:
            query.processAllAvailable()
            assert found == [*range(10), *range(15)]
    finally:
        query.stop()


def test_an_end_is_refused(spark, broker, tmp_path):
    """Spark's source ignores one of the three options in silence."""
    broker.create(TOPIC, 1)
    with pytest.raises(PySparkException, match="option endingTimestamp: a stream has no end"):
        Copying(spark, broker, tmp_path, includeHeaders="true", endingTimestamp="5").run()
