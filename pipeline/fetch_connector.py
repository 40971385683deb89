"""`python -m echoless.spark fetch-connector`: fetches Spark's Kafka connector with Maven."""

from __future__ import annotations

import typer

from echoless.pipeline.kafka_connector import ConnectorError, fetch_jars, has_jars, jars_directory


def fetch_connector_command() -> None:
    """Fetch Spark's Kafka connector, which the mirror reads with, and print its jars."""
    try:
        directory = jars_directory() if has_jars() else fetch_jars()
    except ConnectorError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    for jar in sorted(directory.glob("*.jar")):
        typer.echo(jar)
