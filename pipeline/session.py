"""The Spark session of every job: local without set-up, or configured by `spark-submit`.

Python workers must run the interpreter of the driver and import `echoless` from where the driver did; both are set
before the JVM starts, because it passes on its environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

_PATH: Final = Path(__file__).parents[2]
"""Directory that `echoless` is imported from."""
_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
}
"""Settings for one machine; a cluster has its own defaults."""
_LOG4J: Final = Path(__file__).parent / "log4j2.properties"
_QUIET: Final = {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"}
"""Errors only, on standard error: a command's output is its verdict."""


def open_session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The running Spark session, or a new one, whose workers find this `echoless`.

    `master` None: the one that `spark-submit` set, else `local[*]`. `settings` are Spark's own (`spark.…`).

    It is a convenience: any session will do. It sets the time zone UTC and the log level ERROR; outside `spark-submit` also
    no web page, no progress bar and 8 shuffle partitions; and in the environment, unless they are set, `PYSPARK_PYTHON`,
    `PYSPARK_DRIVER_PYTHON`, `SPARK_LOCAL_IP` (127.0.0.1) and `PYTHONPATH`.
    """
    _prepare_workers()
    builder = SparkSession.builder.appName(name).config("spark.sql.session.timeZone", "UTC")
    if not is_submitted():
        builder = builder.master(master or "local[*]")
        for key, value in {**_LOCAL, **_QUIET}.items():
            builder = builder.config(key, value)
    elif master is not None:
        builder = builder.master(master)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def is_submitted() -> bool:
    """Whether `spark-submit` started this process: it starts the JVM first and passes its port."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _prepare_workers() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if not is_submitted():
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        paths = [str(_PATH), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
