"""One audit from start to end: logs are read once, all other steps work on tables.

1. the headers are read, the CRCs checked     -> batches, runs, extents, transaction_parts
2. parts of transactions are joined           -> transactions: aborted and open ones
3. runs of each producer are judged           -> findings
4. extents of each log are judged             -> findings
5. replicas are compared with each other      -> findings
6. what damage, aborted transactions and compaction explain becomes a note; producers get their names
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from echoless.client.connection_errors import ConnectionFailedError
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.audit.compaction import excuse_compacted
from echoless.pipeline.audit.extents import FAULT_RECORD_COUNT
from echoless.pipeline.audit.findings import FINDING_DDL, Finding, FindingKind, Severity
from echoless.pipeline.audit.log_bounds import LogBounds, findings_about_bounds
from echoless.pipeline.audit.log_checkpoints import LogCheckpoints, read_bounds, read_cleaned
from echoless.pipeline.audit.producer_names import PRODUCERS_MAX, Place, ProducerNames
from echoless.pipeline.audit.replicas import compare_replicas
from echoless.pipeline.audit.runs import PARTITION_KEY
from echoless.pipeline.audit.scan_tables import TABLES, scan, table_path
from echoless.pipeline.audit.streams import (
    PartitionOfReplica,
    findings_of_transactions,
    judge_extents,
    judge_runs,
    judge_transactions,
)
from echoless.pipeline.audit.transaction_history import TransactionOutcome
from echoless.pipeline.audit.visibility import place_and_excuse
from echoless.pipeline.batches.data_directory import is_read
from echoless.pipeline.batches.partition_leader import EARLIEST
from echoless.pipeline.batches.partition_offsets import read_offsets_of
from echoless.pipeline.security import security_in

_HIDING: Final = (FindingKind.CRC, FindingKind.DAMAGE, FindingKind.DELETED)
FINDINGS_SHOWN_MAX: Final = 1000
EXPIRATION_MS_DEFAULT: Final = 86_400_000
NameProducers = Callable[[Collection[Place]], "ProducerNames"]
"""Looks up the names of producers that findings are about."""


@dataclass(slots=True, frozen=True, kw_only=True)
class AuditTables:
    """Tables of an audit, as Parquet below one directory."""

    batches: DataFrame
    runs: DataFrame
    extents: DataFrame
    transactions: DataFrame
    """Transactions that were aborted or are open."""
    partitions: DataFrame
    findings: DataFrame


def audit(
    session: SparkSession,
    source: Mapping[str, str],
    directory: Path,
    *,
    checkpoints: LogCheckpoints,
    expiration_ms: int = EXPIRATION_MS_DEFAULT,
    compacted: Collection[str] = (),
    name_producers: NameProducers | None = None,
) -> AuditTables:
    """Reads the logs that `source` names (options of `echoless-batches`) and judges them.

    `compacted`: topics that are known to be, or to have been, compacted. All tables are written below `directory`, which must not
    have any yet.
    """
    directory = directory.resolve()  # tasks may have another working directory
    tables = _Tables(session, directory)
    scan(session, source, directory)
    batches, runs, extents, parts = (tables.read(name, table.ddl) for name, table in TABLES.items())
    transactions = tables.keep("transactions", judge_transactions(parts))
    partitions = tables.keep("partitions", _summarise(extents, transactions))
    # A running broker may have cleaned a log for the first time since.
    cleaned = read_cleaned({key[0] for key in checkpoints.bounds})
    checkpoints = replace(checkpoints, cleaned={**checkpoints.cleaned, **cleaned})
    compaction = _compaction(partitions, checkpoints, compacted)
    complete = frozenset(
        tuple(row) for row in partitions.where("first_offset = 0").select(*PARTITION_KEY).collect()
    )
    of_log = judge_extents(
        extents,
        checkpoints.recovery_points,
        compaction,
        checkpoints.meeting,
        _starts(source, checkpoints),
    ).cache()
    hidden = hidden_offsets(of_log)
    of_producers = _of_producers(
        judge_runs(runs, complete, expiration_ms), batches, transactions, hidden, compaction
    )
    of_replicas = compare_replicas(batches, partitions, hidden, checkpoints, compaction)
    of_transactions = excuse_markers(findings_of_transactions(transactions), hidden, compaction)
    findings = of_producers.union(of_transactions)
    of_bounds = list(_of_bounds(source, partitions, checkpoints.bounds))
    findings = findings.union(of_log).union(of_replicas)
    findings = findings.union(session.createDataFrame(of_bounds, FINDING_DDL))
    return AuditTables(
        batches=batches,
        runs=runs,
        extents=extents,
        transactions=transactions,
        partitions=partitions,
        findings=tables.keep("findings", _named(findings, name_producers)),
    )


def _of_bounds(
    source: Mapping[str, str],
    partitions: DataFrame,
    bounds: Mapping[PartitionOfReplica, LogBounds],
) -> Iterator[Finding]:
    """Yields what the logs that `source` names lack at their ends.

    A running broker may have rolled a log and deleted its files since the bounds were read: a problem stands with those of now,
    too.
    """
    with_internal = source.get("includeInternal", "false").lower() == "true"
    rows = partitions.select(*PARTITION_KEY, "end_offset").collect() if bounds else []
    ends = {(row[0], row[1], row[2]): row[3] for row in rows}
    suspects = [
        key
        for key, of_log in bounds.items()
        if is_read(key[1], source.get("topic"), with_internal=with_internal)
        and any(findings_about_bounds(key, of_log, ends.get(key)))
    ]
    now = read_bounds({key[0] for key in suspects})
    for key in suspects:
        if key in now:
            of_log = now[key].promised_before(bounds[key])
            yield from findings_about_bounds(key, of_log, ends.get(key))


def _of_producers(
    judged: DataFrame,
    batches: DataFrame,
    transactions: DataFrame,
    hidden: DataFrame,
    compaction: Mapping[PartitionOfReplica, bool | None],
) -> DataFrame:
    """Makes notes of the findings about producers that something else explains."""
    placed = place_and_excuse(judged.cache(), batches, transactions)
    compacted = {key: bool(known) for key, known in compaction.items() if known is not False}
    return excuse_compacted(excuse_hidden(placed, hidden), batches, compacted)


def _starts(
    source: Mapping[str, str], checkpoints: LogCheckpoints
) -> dict[PartitionOfReplica, int]:
    """Returns where the logs begin now, as far as that can be learnt."""
    servers = source.get("kafka.bootstrap.servers")
    if servers is None:
        bounds = read_bounds({key[0] for key in checkpoints.bounds})
        return {key: of_log.first_file or 0 for key, of_log in bounds.items()}
    partitions = [TopicPartition(*key[1:]) for key in checkpoints.recovery_points]
    try:
        starts = read_offsets_of(servers, partitions, EARLIEST, security_in(source))
    except ConnectionFailedError:
        return {}
    return {(servers, *one): start for one, start in starts.items()}


def _compaction(
    partitions: DataFrame, checkpoints: LogCheckpoints, compacted: Collection[str]
) -> dict[PartitionOfReplica, bool | None]:
    """Returns whether each log may have been compacted; None where nothing says so.

    A topic has one policy, and a follower copies what its leader's cleaner has left: a sign of compaction in one log counts
    for all of its topic.
    """
    rows = partitions.select(*PARTITION_KEY, "sparse").collect()
    topics = (
        {row[1] for row in rows if row[3]} | {key[1] for key in checkpoints.cleaned} | {*compacted}
    )
    topics |= {key[1] for key, is_one in checkpoints.compaction.items() if is_one}
    keys = [(row[0], row[1], row[2]) for row in rows]
    return {key: True if key[1] in topics else checkpoints.compaction.get(key) for key in keys}


def _named(findings: DataFrame, name_producers: NameProducers | None) -> DataFrame:
    """Adds transactional ids and client ids where they are known."""
    if name_producers is None:
        return findings
    kept = findings.cache()
    of_producers = kept.where("producer_id IS NOT NULL").select("topic", "partition", "producer_id")
    places = [
        (row[0], row[1], row[2]) for row in of_producers.distinct().limit(PRODUCERS_MAX).collect()
    ]
    names = name_producers(places) if places else ProducerNames()
    session = findings.sparkSession
    ids = session.createDataFrame(
        list(names.transactional_ids.items()), "producer_id long, transactional_id string"
    )
    clients = session.createDataFrame(
        [(*place, name) for place, name in names.client_ids.items()],
        "topic string, partition int, producer_id long, client_id string",
    )
    return (
        kept.drop("transactional_id", "client_id")
        .join(f.broadcast(ids), ["producer_id"], "left")
        .join(f.broadcast(clients), ["topic", "partition", "producer_id"], "left")
        .select(*Finding._fields)
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


def _summarise(extents: DataFrame, transactions: DataFrame) -> DataFrame:
    """Summarises logs in one row for each partition of each replica."""
    is_believed = f.col("fault").isNull() | (f.col("fault") == FAULT_RECORD_COUNT)
    of_outcome = {
        name: f.sum(f.when(f.col("outcome") == outcome.value, f.col("records")))
        for name, outcome in (
            ("aborted", TransactionOutcome.ABORTED),
            ("open", TransactionOutcome.OPEN),
        )
    }
    in_transactions = transactions.groupBy(*PARTITION_KEY).agg(
        *(f.coalesce(total, f.lit(0)).alias(name) for name, total in of_outcome.items())
    )
    logs = extents.groupBy(*PARTITION_KEY).agg(
        f.min(f.when(is_believed, f.col("base_offset"))).alias("first_offset"),
        (f.max(f.when(is_believed, f.col("last_offset"))) + 1).alias("end_offset"),
        f.sum("batches").alias("batches"),
        f.sum("records").alias("records"),
        f.sum("markers").alias("markers"),
        f.sum("sparse").alias("sparse"),
        f.sum("bytes").alias("bytes"),
        f.min(f.when(is_believed, f.col("first_timestamp"))).alias("first_timestamp"),
        f.max(f.when(is_believed, f.col("last_timestamp"))).alias("last_timestamp"),
    )
    return logs.join(in_transactions, list(PARTITION_KEY), "left").fillna(0, ["aborted", "open"])


def hidden_offsets(of_log: DataFrame) -> DataFrame:
    """Returns the offsets that damage or deletion hides, from `hidden_from` to `hidden_to`, and their number."""
    ranges = of_log.where(f.col("kind").isin(*_HIDING)).select(
        *PARTITION_KEY,
        f.col("base_offset").alias("hidden_from"),
        f.coalesce("last_offset", f.lit(2**62)).alias("hidden_to"),
    )
    count = f.col("hidden_to") - f.col("hidden_from") + 1
    return ranges.distinct().withColumn("hidden", count)


def excuse_hidden(of_producers: DataFrame, hidden: DataFrame) -> DataFrame:
    """Turns gaps whose records can all be in hidden offsets between their ends into notes."""
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
    text = f.when(is_excused, f.concat("text", f.lit(", where bytes are damaged, or were deleted")))
    return marked.withColumns({"severity": severity, "text": text.otherwise(f.col("text"))}).select(
        *Finding._fields
    )


def excuse_markers(
    of_transactions: DataFrame,
    hidden: DataFrame,
    compaction: Mapping[PartitionOfReplica, bool | None],
) -> DataFrame:
    """Turns missing markers that hidden offsets or compaction can explain into notes."""
    if of_transactions.where(f.col("kind") == FindingKind.LOST_MARKER).isEmpty():
        return of_transactions
    session = of_transactions.sparkSession
    compacted = session.createDataFrame(
        [(*key, 0, 2**62) for key, is_one in compaction.items() if is_one is not False],
        "replica string, topic string, partition int, hidden_from long, hidden_to long",
    )
    ranges = hidden.drop("hidden").union(compacted)
    is_within = [of_transactions[name] == ranges[name] for name in PARTITION_KEY]
    is_within += [
        of_transactions["kind"] == FindingKind.LOST_MARKER.value,
        ranges["hidden_from"] <= of_transactions["last_offset"],
        ranges["hidden_to"] >= of_transactions["base_offset"],
    ]
    excused = of_transactions.join(ranges, is_within, "left_semi")
    note = {
        "severity": f.lit(Severity.NOTE.value),
        "text": f.concat("text", f.lit(", or damage, deletion or compaction hides it")),
    }
    return of_transactions.join(ranges, is_within, "left_anti").union(excused.withColumns(note))


def shown(findings: DataFrame) -> Sequence[Finding]:
    """Returns the first findings, problems before notes, in log order."""
    rows = findings.orderBy(
        f.desc("severity"), *PARTITION_KEY, f.coalesce("base_offset", f.lit(0)), "kind"
    ).limit(FINDINGS_SHOWN_MAX)
    return [Finding(*row) for row in rows.collect()]
