"""Spark's Kafka connector is found, or the remedy named."""

from __future__ import annotations

from pathlib import Path

import pytest

from echoless.pipeline.kafka_connector import (
    JARS_VARIABLE,
    ConnectorError,
    connector_settings,
    fetch_jars,
    jars_directory,
)


def test_jars_are_taken_from_the_directory_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it, by path, once the connector itself is there."""
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path))
    assert jars_directory() == tmp_path
    with pytest.raises(ConnectorError, match=r"run `python -m echoless.spark fetch-connector`"):
        connector_settings()
    names = ("a.jar", "spark-sql-kafka-0-10_2.13-4.2.1.jar")
    for name in names:
        (tmp_path / name).touch()
    wanted = ",".join(str(tmp_path / name) for name in names)
    assert connector_settings() == {"spark.jars": wanted}


def test_fetching_needs_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the message says so."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConnectorError, match="`mvn` is not installed"):
        fetch_jars()
