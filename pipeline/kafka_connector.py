"""Spark's own Kafka connector, which PySpark does not include: finds its jars, or fetches them.

A local session gets them by path (`spark.jars`). Under `spark-submit` the JVM is running already and must have been
given them. Maven fetches them at the version of the installed Spark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.version import __version__ as _pyspark_version

JARS_VARIABLE: Final = "SPARK_KAFKA_JARS"
SPARK_VERSION: Final[str] = _pyspark_version
PACKAGE: Final = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}"
FETCH_COMMAND: Final = "python -m echoless.spark fetch-connector"

_TREE: Final = Path(__file__).parents[3]
_POM: Final = Path(__file__).parent / "kafka_connector.xml"
_MAIN_JAR: Final = "spark-sql-kafka-0-10_2.13-*.jar"
_PROVIDER: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_FETCH_TIMEOUT_S: Final = 900


class ConnectorError(Exception):
    """The connector is missing or cannot be fetched; the message says what to do about it."""


def jars_directory() -> Path:
    """Returns the directory for the jars: the variable's, the tree's or the user's."""
    if JARS_VARIABLE in os.environ:
        return Path(os.environ[JARS_VARIABLE])
    in_tree = (_TREE / "pyproject.toml").exists()
    caches = _TREE / ".cache" if in_tree else Path.home() / ".cache" / "echoless"
    return caches / f"spark-kafka-{SPARK_VERSION}"


def has_jars() -> bool:
    """Whether the jars have been fetched."""
    return any(jars_directory().glob(_MAIN_JAR))


def connector_settings() -> Mapping[str, str]:
    """Returns the settings that give a new local session the connector. Raises `ConnectorError`."""
    if not has_jars():
        raise ConnectorError(
            f"Spark's Kafka connector {SPARK_VERSION} is not in {jars_directory()}: "
            f"run `{FETCH_COMMAND}` (needs Maven), or name a directory that has {_MAIN_JAR} and "
            f"what it depends on in {JARS_VARIABLE}"
        )
    jars = sorted(str(path) for path in jars_directory().glob("*.jar"))
    return {"spark.jars": ",".join(jars)}


def require_connector(session: SparkSession) -> None:
    """Checks that the running JVM has the connector. Raises `ConnectorError`."""
    jvm = session.sparkContext._jvm  # noqa: SLF001  PySpark has no other way to its classes
    assert jvm is not None, "the session runs"
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(_PROVIDER)
    except Exception as error:
        raise ConnectorError(
            f"this Spark lacks its Kafka connector: `spark-submit --packages {PACKAGE} ...`, "
            f"or `--jars` with the files that `{FETCH_COMMAND}` fetches"
        ) from error


def fetch_jars() -> Path:
    """Fetches the jars with Maven; returns their directory. Raises `ConnectorError`."""
    if shutil.which("mvn") is None:
        raise ConnectorError(f"Maven is needed to fetch {PACKAGE}: `mvn` is not installed")
    reasons = []
    for version, token_version in _candidates():
        reason = _fetch(version, token_version)
        if reason is None:
            return jars_directory()
        reasons.append(reason)
    raise ConnectorError(f"Maven could not fetch {PACKAGE}: {reasons[0]}")


def _candidates() -> list[tuple[str, str]]:
    """Returns versions of the connector and of its token provider to try, Spark's own first.

    Repositories are not always complete. Connectors of older patch releases fit, and so do older token providers,
    which only delegation tokens need.
    """
    major, minor, patch = SPARK_VERSION.split(".")[:3]
    fitting = [f"{major}.{minor}.{number}" for number in range(int(patch), -1, -1)]
    return [*((version, version) for version in fitting), (fitting[-1], f"{major}.0.0")]


def _fetch(version: str, token_version: str) -> str | None:
    """Fetches one version; returns why that failed, or None."""
    directory = jars_directory()
    command = [
        *("mvn", "-q", "-B", "-f", str(_POM), f"-Dspark.version={version}"),
        *(f"-Dtoken.version={token_version}", "dependency:copy-dependencies"),
        f"-DoutputDirectory={directory}",
    ]
    try:
        done = subprocess.run(  # noqa: S603  a fixed command
            command, check=False, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"not done in {_FETCH_TIMEOUT_S} s"
    if done.returncode == 0 and has_jars():
        return None
    said = (done.stdout + done.stderr).splitlines()
    return next((line for line in said if "ERROR" in line), "no reason given")
