"""The reader under a real Spark: a topic as a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema

from echoless.pipeline.exactly_once.data_source import register
from echoless.pipeline.reading.columns import COLUMNS, HEADERS, arrow_schema_of
from tests.pipeline.exactly_once.broker_thread import BrokerThread
from tests.pipeline.reading.written import TOPIC, read, write

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def topic(tmp_path_factory: Any) -> Iterator[BrokerThread]:
    """A broker with a topic of three partitions, the last of which is empty."""
    directory: Path = tmp_path_factory.mktemp("reader")
    with BrokerThread(directory, num_partitions=3) as running:
        running.create(TOPIC, 3)
        write(running.address, 0, 400, codec="zstd")
        write(running.address, 1, 200, first=1000)
        yield running


def job(spark: Any, broker: BrokerThread, **options: str) -> Any:
    register(spark)
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": TOPIC, **options}
    return spark.read.format("echoless").options(**options).load()


def test_a_topic_is_a_data_frame(spark, topic):
    """Every column of every record, as without Spark; Arrow's types are those that Spark expects."""
    frame = job(spark, topic, includeHeaders="true", minPartitions="5")
    assert frame.rdd.getNumPartitions() == 5
    zone = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    assert to_arrow_schema(frame.schema, **zone) == arrow_schema_of((*COLUMNS, HEADERS))
    expected = read(topic.address, includeHeaders="true")
    assert frame.count() == len(expected) == 600
    for row, wanted in zip(frame.orderBy("partition", "offset").collect(), expected, strict=True):
        found = row.asDict(recursive=True)
        times = found.pop("timestamp").timestamp(), wanted.pop("timestamp").timestamp()
        assert times[0] == times[1]
        assert found == wanted


def test_columns_are_chosen_by_an_option(spark, topic):
    """Spark does not say which columns a query uses."""
    frame = job(spark, topic, columns="offset,key")
    assert frame.columns == ["offset", "key"]
    assert frame.where("offset = 7 and key = 'k7'").count() == 1


def test_a_query_is_not_changed_by_the_filter_of_another(spark, topic):
    """No filter is pushed to the reader: Spark 4.2 would apply it to other queries of the same frame, too."""
    frame = job(spark, topic)
    filtered = frame.where("partition = 0")
    assert filtered.unionAll(frame).count() == 1000
    assert (filtered.count(), frame.count()) == (400, 600)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "missing"}, "topic missing: it does not exist"),
        ({"startingOffsets": '{"orders": {"0": 5}}'}, "does not name orders-1 and 1 more"),
    ],
)
def test_a_mistake_ends_the_job_with_one_sentence(spark, topic, options, message):
    """Before any task runs."""
    with pytest.raises(PySparkException, match=message):
        job(spark, topic, **options).count()


def test_a_schema_of_the_users_is_refused(spark, topic):
    """Spark would take the columns' names on trust."""
    register(spark)
    options = {"kafka.bootstrap.servers": topic.address, "subscribe": TOPIC}
    reader = spark.read.format("echoless").schema("value STRING").options(**options)
    with pytest.raises(PySparkException, match="leave schema"):
        reader.load().count()
