"""Places that Spark gives to paths: where one without a scheme is, how its store is reached, where checkpoints are by default.

Spark resolves a path without a scheme against `fs.defaultFS`. A ledger that is taken for a local directory while the
checkpoint is on HDFS would be lost with the machine, so it is resolved in the same way.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from echoless.pipeline.exactly_once.errors import OptionError
from echoless.pipeline.exactly_once.store_settings import (
    HADOOP_NAMES,
    HADOOP_PREFIXES,
    NO_SETTINGS,
    StoreSettings,
)

CHECKPOINT_ROOT: Final = "spark.sql.streaming.checkpointLocation"
_DEFAULT_FILE_SYSTEM: Final = "fs.defaultFS"
_SPARKS_HADOOP: Final = "spark.hadoop."


class DefaultPlaces(NamedTuple):
    """Additions of a session to paths."""

    file_system: str = ""
    """URI of the file system of paths without a scheme; empty: the local one."""
    checkpoints: str = ""
    """Directory of checkpoints by query name; empty: there is none."""
    stores: StoreSettings = NO_SETTINGS
    """Hadoop's settings of stores."""

    def resolved(self, path: str) -> str:
        """Returns the path with its scheme, unless it is local. Raises `OptionError`."""
        scheme, separator, _ = path.partition(":")
        if not self.file_system or (separator and "/" not in scheme):
            return path
        if not path.startswith("/"):
            raise OptionError(
                f"ledger {path}: {_DEFAULT_FILE_SYSTEM} is {self.file_system}: write the path with its scheme, "
                f"file:/... or {self.file_system}/..."
            )
        return f"{self.file_system}{path}"

    def checkpoint(self, query_name: str | None) -> str | None:
        """Returns the checkpoint of a query that names none; None: there is no default. Raises `OptionError`."""
        if not self.checkpoints:
            return None
        if not query_name:
            raise OptionError(
                f"{CHECKPOINT_ROOT} is {self.checkpoints}, where Spark begins a new checkpoint at each start of a "
                "query without a name: set queryName(...), or the option checkpointLocation"
            )
        return f"{self.checkpoints.rstrip('/')}/{query_name}"


def default_places(spark: Any) -> DefaultPlaces:
    """Reads a session's; under Spark Connect, where Hadoop's settings cannot be read, only that of checkpoints is known."""
    checkpoints = spark.conf.get(CHECKPOINT_ROOT, None) or ""
    if is_connect(spark):
        return DefaultPlaces("", checkpoints)
    configuration = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001  no public name
    file_system = (configuration.get(_DEFAULT_FILE_SYSTEM) or "").rstrip("/")
    return DefaultPlaces(
        "" if file_system.startswith("file:") else file_system,
        checkpoints,
        StoreSettings(hadoop=_hadoop(spark, configuration)),
    )


def _hadoop(spark: Any, configuration: Any) -> dict[str, str]:
    """Reads the settings of stores, each once: a call into the JVM takes a third of a millisecond."""
    found = {name: configuration.get(name) for name in HADOOP_NAMES}
    for name, value in spark.sparkContext.getConf().getAll():
        own = name.removeprefix(_SPARKS_HADOOP)
        if own != name and own.startswith(HADOOP_PREFIXES):
            found[own] = value
    return {name: value for name, value in found.items() if value}


def is_connect(thing: object) -> bool:
    """Whether a session or data frame is Spark Connect's."""
    return type(thing).__module__.startswith("pyspark.sql.connect")
