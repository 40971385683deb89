"""One audit from start to end: logs are read once, all other steps work on tables.

1. the headers are read, the CRCs checked     -> batches.parquet, runs.parquet, extents.parquet
2. runs of each producer are judged           -> findings.parquet
3. extents of each log are judged             -> findings.parquet
4. replicas are compared with each other      -> findings.parquet
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from echoless.pipeline.audit.extents import FAULT_RECORD_COUNT
from echoless.pipeline.audit.findings import Finding, FindingKind, Severity
from echoless.pipeline.audit.log_checkpoints import LogCheckpoints
from echoless.pipeline.audit.replicas import compare_replicas
from echoless.pipeline.audit.runs import PARTITION_KEY
from echoless.pipeline.audit.scan_tables import TABLES, scan, table_path
from echoless.pipeline.audit.streams import judge_extents, judge_runs

FINDINGS_SHOWN_MAX: Final = 1000
EXPIRATION_MS_DEFAULT: Final = 86_400_000


@dataclass(slots=True, frozen=True, kw_only=True)
class AuditTables:
    """Tables of an audit, as Parquet below one directory."""

    batches: DataFrame
    runs: DataFrame
    extents: DataFrame
    partitions: DataFrame
    findings: DataFrame


def audit(
    session: SparkSession,
    source: Mapping[str, str],
    directory: Path,
    *,
    checkpoints: LogCheckpoints,
    expiration_ms: int = EXPIRATION_MS_DEFAULT,
) -> AuditTables:
    """Reads the logs that `source` names (options of `echoless-batches`) and judges them.

    All tables are written below `directory`, which must not have any yet.
    """
    directory = directory.resolve()  # tasks may have another working directory
    tables = _Tables(session, directory)
    scan(session, source, directory)
    batches, runs, extents = (tables.read(name, table.ddl) for name, table in TABLES.items())
    partitions = tables.keep("partitions", _summarise(extents))
    complete = frozenset(
        tuple(row) for row in partitions.where("first_offset = 0").select(*PARTITION_KEY).collect()
    )
    of_log = judge_extents(extents, checkpoints.recovery_points).cache()
    of_producers = judge_runs(runs, complete, expiration_ms)
    hidden = hidden_offsets(of_log)
    of_replicas = compare_replicas(batches, partitions, hidden, checkpoints.high_watermarks)
    findings = excuse_hidden(of_producers, hidden).union(of_log).union(of_replicas)
    return AuditTables(
        batches=batches,
        runs=runs,
        extents=extents,
        partitions=partitions,
        findings=tables.keep("findings", findings),
    )


class _Tables:
    def __init__(self, session: SparkSession, directory: Path) -> None:
        self._session = session
        self._directory = directory

    def keep(self, name: str, rows: DataFrame) -> DataFrame:
        """Writes the rows; returns them as read back."""
        rows.write.parquet(self._location(name))
        return self.read(name, rows.schema)

    def read(self, name: str, schema: StructType | str) -> DataFrame:
        return self._session.read.schema(schema).parquet(self._location(name))

    def _location(self, name: str) -> str:
        """Returns the address of a table, on the file system that tasks write to themselves."""
        return table_path(self._directory, name).as_uri()


def _summarise(extents: DataFrame) -> DataFrame:
    """Summarises extents in one row for each partition of each replica."""
    is_believed = f.col("fault").isNull() | (f.col("fault") == FAULT_RECORD_COUNT)
    return extents.groupBy(*PARTITION_KEY).agg(
        f.min(f.when(is_believed, f.col("base_offset"))).alias("first_offset"),
        (f.max(f.when(is_believed, f.col("last_offset"))) + 1).alias("end_offset"),
        f.sum("batches").alias("batches"),
        f.sum("records").alias("records"),
        f.sum("bytes").alias("bytes"),
        f.min(f.when(is_believed, f.col("first_timestamp"))).alias("first_timestamp"),
        f.max(f.when(is_believed, f.col("last_timestamp"))).alias("last_timestamp"),
    )


def hidden_offsets(of_log: DataFrame) -> DataFrame:
    """Returns the offsets that damage hides, from `hidden_from` to `hidden_to`, and their number."""
    ranges = of_log.where(f.col("kind").isin(FindingKind.CRC, FindingKind.DAMAGE)).select(
        *PARTITION_KEY,
        f.col("base_offset").alias("hidden_from"),
        f.coalesce("last_offset", f.lit(2**62)).alias("hidden_to"),
    )
    count = f.col("hidden_to") - f.col("hidden_from") + 1
    return ranges.distinct().withColumn("hidden", count)


def excuse_hidden(of_producers: DataFrame, hidden: DataFrame) -> DataFrame:
    """Turns gaps whose records can all be in damaged bytes between their ends into notes."""
    is_between = (
        (f.col("kind") == FindingKind.GAP)
        & (f.col("hidden_from") > f.col("after_offset"))
        & (f.col("hidden_to") < f.col("base_offset"))
    )
    keys = [of_producers[name] == hidden[name] for name in PARTITION_KEY]
    identity = (*PARTITION_KEY, "producer_id", "producer_epoch", "base_sequence", "base_offset")
    excused = (
        of_producers.join(hidden, [*keys, is_between])
        .groupBy(*(of_producers[name] for name in identity), "records")
        .agg(f.sum("hidden").alias("hidden"))
        .where("hidden >= records")
        .select(*identity, f.lit(True).alias("is_excused"))
    )
    marked = of_producers.join(excused, list(identity), "left")
    is_excused = f.col("is_excused").isNotNull() & (f.col("kind") == FindingKind.GAP)
    severity = f.when(is_excused, f.lit(Severity.NOTE.value)).otherwise(f.col("severity"))
    text = f.when(is_excused, f.concat("text", f.lit(", where bytes are damaged")))
    return marked.withColumns({"severity": severity, "text": text.otherwise(f.col("text"))}).select(
        *Finding._fields
    )


def shown(findings: DataFrame) -> Sequence[Finding]:
    """Returns the first findings, problems before notes, in log order."""
    rows = findings.orderBy(
        f.desc("severity"), *PARTITION_KEY, f.coalesce("base_offset", f.lit(0)), "kind"
    ).limit(FINDINGS_SHOWN_MAX)
    return [Finding(*row) for row in rows.collect()]
