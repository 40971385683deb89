"""Fixtures of the Spark jobs' tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.tools import SPARK_AVRO
from tests.toolchain import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark for the whole run, in this process and a separate JVM; tasks are tried three times."""
    require("java")
    from echoless.pipeline.kafka_connector import connector_settings, has_jars
    from echoless.pipeline.session import open_session

    jars = connector_settings()["spark.jars"].split(",") if has_jars() else []
    jars += [str(SPARK_AVRO)] if SPARK_AVRO.exists() else []
    session = open_session(
        "tests",
        master="local[2, 3]",
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            **({"spark.jars": ",".join(jars)} if jars else {}),
        },
    )
    yield session
    session.stop()
