"""The sink under a real Spark with its ledger on S3: settings as Spark users have them, and never shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from echoless.pipeline.exactly_once.data_source import register
from echoless.pipeline.exactly_once.default_places import default_places
from echoless.pipeline.exactly_once.ledger_files import open_ledger_files
from echoless.pipeline.exactly_once.sink import ExactlyOnceSink
from echoless.pipeline.exactly_once.store_settings import StoreSettings
from tests.pipeline.exactly_once.attempts import PARTITIONS, TOPIC
from tests.pipeline.exactly_once.broker_thread import BrokerThread
from tests.pipeline.stores.servers import S3_SECRET, Store, versitygw

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 300


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with versitygw(tmp_path) as store:
        yield store


@pytest.fixture
def hadoop(spark: Any, store: Store) -> Iterator[None]:
    """Sets Hadoop's names in the session, as a cluster's configuration does."""
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    names = {
        "fs.s3a.access.key": "key",
        "fs.s3a.secret.key": S3_SECRET,
        "fs.s3a.endpoint": store.options["endpoint"],
        "fs.s3a.path.style.access": "true",
    }
    for name, value in names.items():
        configuration.set(name, value)
    yield
    for name in names:
        configuration.unset(name)


def _rows(spark: Any) -> Any:
    return spark.range(ROWS, numPartitions=3).selectExpr("CAST(id AS STRING) AS value")


def _stored(broker: BrokerThread) -> list[int]:
    return sorted(int(value) for value in broker.values(TOPIC, PARTITIONS) if value)


def _job(store: Store, broker: BrokerThread) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.address,
        "topic": TOPIC,
        "sinkName": "orders",
        "ledgerLocation": store.uri.replace("s3://", "s3a://"),
    }


def _by_data_source(spark: Any, options: dict[str, str]) -> None:
    register(spark)
    _rows(spark).write.format("echoless").options(**options).mode("append").save()


def _by_sink(spark: Any, options: dict[str, str]) -> None:
    ExactlyOnceSink(options).write(_rows(spark))


@pytest.mark.usefixtures("hadoop")
@pytest.mark.parametrize("write", [_by_data_source, _by_sink])
def test_hadoops_settings_reach_the_ledger(
    spark: Any, broker: BrokerThread, store: Store, write: Callable[[Any, dict[str, str]], None]
) -> None:
    """A job that is run again stores nothing: its tasks have found the ledger, with the driver's credentials."""
    for _ in range(2):
        write(spark, _job(store, broker))
        assert _stored(broker) == list(range(ROWS))
    files = open_ledger_files(store.uri, StoreSettings(store.options))
    assert "ledger.json" in files.list("orders")


def test_options_reach_the_ledger(spark: Any, broker: BrokerThread, store: Store) -> None:
    """The session has no settings; Spark hides the values of such names."""
    named = {f"ledger.{name}": value for name, value in store.options.items()}
    _by_data_source(spark, {**_job(store, broker), **named})
    assert _stored(broker) == list(range(ROWS))
    assert S3_SECRET not in _plans(spark)


@pytest.mark.usefixtures("hadoop")
def test_credentials_are_in_no_plan(spark: Any, store: Store, broker: BrokerThread) -> None:
    """Spark shows plans in its pages and writes them to its event log."""
    _by_data_source(spark, _job(store, broker))
    assert S3_SECRET not in _plans(spark)
    assert S3_SECRET not in repr(default_places(spark))


def _plans(spark: Any) -> str:
    """Returns all plans of the session, as its pages show them."""
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    numbers = range(executions.size())
    shown = "".join(executions.apply(number).physicalPlanDescription() for number in numbers)
    assert "echoless" in shown.lower()
    return shown
