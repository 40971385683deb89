"""A path means the same to the sink as to Spark."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.cloudpickle import dumps
from pyspark.errors import PySparkException

from echoless.pipeline.exactly_once.data_source import ExactlyOnceDataSource, _with_places, register
from echoless.pipeline.exactly_once.default_places import CHECKPOINT_ROOT, DefaultPlaces
from echoless.pipeline.exactly_once.errors import LedgerError, OptionError
from echoless.pipeline.exactly_once.sink import ExactlyOnceSink
from tests.pipeline.exactly_once.attempts import PARTITIONS, TOPIC

HDFS = "hdfs://nowhere:1"


def test_a_path_without_a_scheme_is_on_the_default_file_system():
    """One with a scheme says where it is; a relative one would depend on the user."""
    places = DefaultPlaces(HDFS)
    assert places.resolved("/ledgers") == "hdfs://nowhere:1/ledgers"
    assert places.resolved("file:/ledgers") == "file:/ledgers"
    assert DefaultPlaces().resolved("ledgers") == "ledgers"
    with pytest.raises(OptionError, match="write the path with its scheme"):
        places.resolved("ledgers")


def test_a_default_checkpoint_needs_the_name_of_the_query():
    """Without one Spark makes a new directory at each start."""
    places = DefaultPlaces(checkpoints="/checkpoints/")
    assert places.checkpoint("orders") == "/checkpoints/orders"
    assert DefaultPlaces().checkpoint("orders") is None
    with pytest.raises(OptionError, match="set queryName"):
        places.checkpoint(None)


def test_tasks_get_the_places_with_the_data_source():
    """Spark pickles the class that was registered."""
    source = pickle.loads(dumps(_with_places(DefaultPlaces(HDFS))))
    assert issubclass(source, ExactlyOnceDataSource)
    assert (source.places.file_system, source.name()) == (HDFS, "echoless")


@pytest.mark.spark
def test_a_ledger_is_not_kept_beside_a_checkpoint_on_hdfs(spark: Any, tmp_path: Path) -> None:
    """Both ways look on the default file system, which is not there."""
    frame = spark.sql("SELECT 'v' AS value")
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    before = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", HDFS)
    reason = f"the ledger cannot be reached: nowhere:9870{tmp_path}/ledger: "
    try:
        options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": TOPIC}
        sink = ExactlyOnceSink(options, name="s", ledger=f"{tmp_path}/ledger")
        with pytest.raises(LedgerError, match=reason):
            sink.write(frame)
        register(spark)
        job = frame.write.format("echoless").options(sinkName="s", **options).mode("append")
        with pytest.raises(PySparkException, match=reason):
            job.option("ledgerLocation", f"{tmp_path}/ledger").save()
    finally:
        hadoop.set("fs.defaultFS", before)
        register(spark)
    assert not list(tmp_path.iterdir())


@pytest.mark.spark
def test_the_default_checkpoint_holds_the_ledger(spark: Any, broker: Any, tmp_path: Path) -> None:
    """A query with a name, started twice: the second start has nothing to do."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.txt").write_text("one")
    spark.conf.set(CHECKPOINT_ROOT, f"{tmp_path}/checkpoints")
    try:
        register(spark)
        rows = spark.readStream.format("text").load(f"{tmp_path}/in")
        options = {"kafka.bootstrap.servers": broker.address, "topic": TOPIC}
        for _ in range(2):
            writer = rows.writeStream.format("echoless").options(**options).queryName("orders")
            writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.conf.unset(CHECKPOINT_ROOT)
        register(spark)
    assert (tmp_path / "checkpoints/orders/echoless-ledger/stream/ledger.json").is_file()
    assert [value for value in broker.values(TOPIC, PARTITIONS) if value] == [b"one"]
