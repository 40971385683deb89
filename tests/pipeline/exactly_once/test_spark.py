"""The sink under a real Spark: streams and jobs, tasks that fail, batches that run again."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from typer.testing import CliRunner

from echoless.pipeline.commands import app
from echoless.pipeline.exactly_once.batch_metrics import METRICS_LOGGER
from echoless.pipeline.exactly_once.data_source import register
from echoless.pipeline.exactly_once.errors import LedgerError, SinkError
from echoless.pipeline.exactly_once.sink import ExactlyOnceSink
from echoless.pipeline.exactly_once.writers import BATCH_ID_PROPERTY, QUERY_ID_PROPERTY
from tests.pipeline.exactly_once.attempts import PARTITIONS, TOPIC
from tests.pipeline.exactly_once.broker_thread import BrokerThread
from tests.pipeline.exactly_once.text_stream import FILE_ROWS, WAYS, Pipeline

pytestmark = pytest.mark.spark


@pytest.fixture(params=WAYS)
def pipeline(spark: Any, broker: BrokerThread, tmp_path: Path, request: Any) -> Pipeline:
    return Pipeline(spark, broker, tmp_path, request.param)


def test_a_stream_stores_each_row_once_whatever_runs_again(pipeline):
    """A batch, a batch that runs again after a crash, another batch, whose tasks fail at first."""
    pipeline.add_file()
    pipeline.run()
    assert pipeline.stored() == pipeline.expected()
    pipeline.forget_commit()
    pipeline.run()
    assert pipeline.stored() == pipeline.expected()
    pipeline.add_file()
    pipeline.add_file()
    pipeline.fails_first_attempts = True
    pipeline.run()
    assert pipeline.stored() == pipeline.expected()
    first, second = pipeline.metrics()
    assert (first.batch_id, first.tasks, first.rows, first.repeats) == (0, 1, FILE_ROWS, 0)
    assert (second.batch_id, second.rows) == (1, 2 * FILE_ROWS)
    assert all(one.ledger_requests > 5 and one.broker_wait_s > 0 for one in (first, second))


def test_a_sink_has_the_figures_of_its_last_batch(spark, broker, tmp_path, caplog):
    """They are in the log and in the ledger, too; those of a batch that ran again say so."""
    caplog.set_level(logging.INFO, METRICS_LOGGER)
    sink = ExactlyOnceSink(broker.address, name="orders", ledger=str(tmp_path), topic=TOPIC)
    for repeats in (0, 100):
        sink.write(numbers(spark, 100, 2), 0)
        assert sink.metrics is not None
        assert (sink.metrics.rows, sink.metrics.repeats, sink.metrics.tasks) == (100, repeats, 2)
        assert f"100 rows of 2 tasks, {repeats} of them stored before" in caplog.messages[-1]
    ran = CliRunner().invoke(app, ["ledger", str(tmp_path), "--name", "orders"])
    assert ran.output.split()[-6:-2] == ["0", "2", "100", "0"]


def test_a_stream_that_has_lost_its_ledger_is_refused(pipeline):
    """Its rows would be stored a second time; whoever knows better says so."""
    pipeline.add_file()
    pipeline.run()
    pipeline.add_file()
    pipeline.run()
    pipeline.forget_commit()
    shutil.rmtree(pipeline.ledger, ignore_errors=True)
    shutil.rmtree(pipeline.checkpoint / "echoless-ledger", ignore_errors=True)
    for _ in range(2):
        with pytest.raises(
            PySparkException, match="the ledger is empty, and the stream is at batch 1"
        ):
            pipeline.run()
    assert pipeline.stored() == pipeline.expected()
    pipeline.options = {"acceptNewLedger": "true"}
    pipeline.run()
    assert len(pipeline.stored()) == 3 * FILE_ROWS


def test_a_continuous_trigger_is_refused(spark, broker, tmp_path):
    """Spark accepts it, calls no Python in its tasks, and goes on in the source."""
    register(spark)
    rows = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    writer = rows.writeStream.format("echoless").option("checkpointLocation", str(tmp_path / "c"))
    writer = writer.options(**{"kafka.bootstrap.servers": broker.address, "topic": TOPIC})
    query = writer.trigger(continuous="1 second").start()
    with pytest.raises(PySparkException, match=r"trigger.continuous=.*use trigger.processingTime"):
        query.awaitTermination(60)
    assert not query.isActive
    assert not list((tmp_path / "c" / "commits").glob("[0-9]*"))


def test_asynchronous_progress_tracking_is_refused(spark, tmp_path):
    """The sink does so where Spark's own check is switched off."""
    register(spark)
    rows = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    writer = rows.writeStream.format("echoless").option("checkpointLocation", str(tmp_path / "c"))
    writer = writer.options(**{"kafka.bootstrap.servers": "127.0.0.1:1", "topic": TOPIC})
    writer = writer.option("asyncProgressTrackingEnabled", "true")
    query = writer.option("_asyncProgressTrackingOverrideSinkSupportCheck", "true").start()
    with pytest.raises(PySparkException, match="asynchronous progress tracking"):
        query.awaitTermination(60)


def numbers(spark: Any, count: int, spark_partitions: int) -> Any:
    return spark.range(0, count, 1, spark_partitions).selectExpr("CAST(id AS STRING) AS value")


@pytest.fixture
def save(spark: Any, broker: BrokerThread, tmp_path: Path) -> Callable[..., None]:
    """`save(frame, **options)`: a job that writes to the topic."""
    register(spark)
    defaults = {
        "kafka.bootstrap.servers": broker.address,
        "topic": TOPIC,
        "ledgerLocation": str(tmp_path / "ledger"),
        "sinkName": "job",
    }

    def write(frame: Any, **options: str | None) -> None:
        given = {name: text for name, text in {**defaults, **options}.items() if text is not None}
        frame.write.format("echoless").options(**given).mode("append").save()

    return write


def test_a_job_that_runs_again_stores_nothing_again(spark, broker, save):
    """The same name and the same rows are the same job; another batch id is another run."""
    frame = numbers(spark, 1000, 3)
    save(frame)
    save(frame)
    assert len(broker.values(TOPIC, PARTITIONS)) == 1000
    save(frame, batchId="1", sortWithinPartitions="true")
    assert len(broker.values(TOPIC, PARTITIONS)) == 2000


def test_a_finished_job_takes_no_further_spark_partition(spark, broker, save):
    """It is refused before it stores its rows: the batch has recorded how many had some."""
    frame = numbers(spark, 1000, 3)
    save(frame)
    more = frame.union(spark.sql("SELECT 'more' AS value"))
    with pytest.raises(PySparkException, match="the batch is complete, with 3 Spark partitions"):
        save(more)
    with pytest.raises(PySparkException, match="sinkName was used before for that one"):
        save(numbers(spark, 900, 3).selectExpr("concat('x', value) AS value"))
    assert len(broker.values(TOPIC, PARTITIONS)) == 1000


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"sinkName": None}, "option sinkName is missing: a name that stays the same"),
        ({"ledgerLocation": None}, "option ledgerLocation is missing: a directory"),
        ({"kafka.transactional.id": "t"}, "option kafka.transactional.id: the sink does not have"),
        ({"topic": None}, "the rows need a column topic, or the sink the option topic"),
    ],
)
def test_a_job_that_cannot_be_written_says_why(spark, save, options, reason):
    """Before a task runs."""
    with pytest.raises(PySparkException, match=reason):
        save(numbers(spark, 10, 1), **options)


def test_a_batch_that_is_divided_otherwise_is_refused(spark, broker, tmp_path):
    """Rows would move to Spark partitions that have stored nothing, and see no difference."""
    sink = ExactlyOnceSink(broker.address, name="orders", ledger=str(tmp_path), topic=TOPIC)
    written = sink.write(numbers(spark, 1000, 3), 0)
    assert [(one.rows, one.rows_found) for one in written] == [(333, 0), (333, 0), (334, 0)]
    with pytest.raises(LedgerError, match="has 2 Spark partitions now and had 3 before"):
        sink.write(numbers(spark, 1000, 2), 0)
    assert len(broker.values(TOPIC, PARTITIONS)) == 1000


def test_a_frame_of_spark_connect_is_refused_with_a_remedy(broker, tmp_path):
    """It has no session in this process."""
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    sink = ExactlyOnceSink(broker.address, name="orders", ledger=str(tmp_path), topic=TOPIC)
    with pytest.raises(SinkError, match=r"register\(spark\), and writeStream"):
        sink.write(frame)


def test_every_column_reaches_the_record(spark, broker, tmp_path):
    """Key, value, topic, partition, headers and timestamp, as Spark's own sink names them."""
    frame = spark.sql(
        "SELECT 'k' AS key, CAST('v' AS BINARY) AS value, 'other' AS topic, 2 AS partition, "
        "array(named_struct('key', 'h', 'value', CAST('x' AS BINARY))) AS headers, "
        "timestamp_millis(1234) AS timestamp, 'ignored' AS more"
    )
    sink = ExactlyOnceSink(
        {"kafka.bootstrap.servers": broker.address},
        name="orders",
        ledger=str(tmp_path),
        sort_within_partitions=True,
    )
    sink.write(frame)
    (record,) = broker.read("other", 2)
    assert record[1:] == (1234, b"k", b"v", (("h", b"x"),))


def test_spark_still_tells_its_tasks_batch_and_query(spark, tmp_path):
    """The data source depends on two internal names of Spark's."""
    seen = tmp_path / "seen"
    seen.mkdir()

    def note(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        properties = map(context.getLocalProperty, (BATCH_ID_PROPERTY, QUERY_ID_PROPERTY))
        (seen / " ".join(map(str, properties))).touch()
        yield from batches

    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.txt").write_text("row\n")
    frame = spark.readStream.format("text").load(str(tmp_path / "source"))
    rows = frame.mapInArrow(note, frame.schema)
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert {path.name for path in seen.iterdir()} == {f"0 {query.id}"}
