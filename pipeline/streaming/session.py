"""The session of a stream: with Spark's Kafka connector if Kafka is the source."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyspark.sql import SparkSession

from echoless.pipeline.kafka_connector import connector_settings, require_connector
from echoless.pipeline.session import open_session


def open_kafka_session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """As `open_session`, able to read Kafka. Raises `ConnectorError`."""
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    jars = {} if is_submitted else connector_settings()
    session = open_session(name, master=master, settings={**jars, **(settings or {})})
    require_connector(session)
    return session
