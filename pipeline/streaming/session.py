"""The session of a stream that reads Kafka: it has Spark's own connector."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from echoless.pipeline.kafka_connector import connector_settings, require_connector
from echoless.pipeline.session import is_submitted, open_session


def open_kafka_session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Opens a session as `open_session` does, with the connector. Raises `ConnectorError`."""
    jars = {} if is_submitted() else connector_settings()
    session = open_session(name, master=master, settings={**jars, **(settings or {})})
    require_connector(session)
    return session
