"""`python -m echoless.spark audit`: reads, judges, prints the verdict, writes tables and report."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from echoless.client.connection_errors import ConnectionFailedError
from echoless.client.security import Security
from echoless.pipeline.audit.audit import EXPIRATION_MS_DEFAULT, NameProducers, audit
from echoless.pipeline.audit.cluster_facts import read_cluster_facts
from echoless.pipeline.audit.duplicates import NoMetricsError, count_duplicates
from echoless.pipeline.audit.log_checkpoints import LogCheckpoints, read_checkpoints
from echoless.pipeline.audit.producer_names import (
    Place,
    ProducerNames,
    client_ids,
    ids_in_cluster,
    ids_in_directories,
)
from echoless.pipeline.audit.report import ReportFacts, write_report
from echoless.pipeline.audit.verdict import show_verdict
from echoless.pipeline.batches.data_directory import NotADataDirectoryError, find_partitions
from echoless.pipeline.batches.partition_leader import ClusterReadError
from echoless.pipeline.security_arguments import checked, file_options
from echoless.pipeline.session import open_session

_PROBLEMS_FOUND: Final = 1
_WIDTH_OF_SCRIPTS: Final = 200


def audit_command(
    paths: Annotated[
        list[str] | None, typer.Argument(help="Data directories, one for each replica.")
    ] = None,
    *,
    bootstrap_server: Annotated[
        str | None, typer.Option(metavar="HOST:PORT[,...]", help="A running cluster instead.")
    ] = None,
    command_config: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Properties with the cluster's security options."),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="Only this topic; default: all but internal ones.")
    ] = None,
    compacted: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC", help="A topic that is, or was, compacted; may be repeated."),
    ] = None,
    internal: Annotated[
        bool, typer.Option("--internal", help="Internal topics, too: offsets, transactions.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="A new directory for the tables, as Parquet.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="An HTML file that shows what was found.")
    ] = None,
    admin_server: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT[,...]", help="Admin ports, for the duplicates avoided."),
    ] = None,
    expiration_ms: Annotated[
        int, typer.Option(help="The brokers' producer_id_expiration_ms.")
    ] = EXPIRATION_MS_DEFAULT,
    master: Annotated[str | None, typer.Option(help="Spark's master; default: local[*].")] = None,
) -> None:
    """Prove from batch headers that every record is stored once, and in order."""
    options = file_options(command_config, "--command-config")
    security = checked(options, "--command-config")
    source = _source(paths or [], bootstrap_server, topic)
    source |= options if bootstrap_server is not None else {}
    source |= {"includeInternal": "true"} if internal else {}
    if output is not None and output.exists() and any(output.iterdir()):
        raise typer.BadParameter(f"{output} is not empty", param_hint="--output")
    duplicates = None if admin_server is None else _duplicates(admin_server)
    checkpoints = _checkpoints(paths or [], bootstrap_server, topic, security)
    session = open_session("echoless audit", master=master)
    with tempfile.TemporaryDirectory(prefix="echoless-audit-") as temporary:
        tables = audit(
            session,
            source,
            output or Path(temporary),
            checkpoints=checkpoints,
            expiration_ms=expiration_ms,
            compacted=compacted or (),
            name_producers=_names(paths or [], bootstrap_server, security, admin_server),
        )
        if report is not None:
            facts = ReportFacts(
                source=bootstrap_server or ", ".join(paths or []),
                made_at=datetime.now(UTC),
                duplicates_avoided=duplicates,
            )
            write_report(report, tables, facts)
        width = None if sys.stdout.isatty() else _WIDTH_OF_SCRIPTS
        console = Console(markup=False, highlight=False, emoji=False, width=width)
        if not show_verdict(tables, console):
            raise typer.Exit(_PROBLEMS_FOUND)


def _duplicates(admin_servers: str) -> int:
    try:
        return count_duplicates(admin_servers)
    except (NoMetricsError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="--admin-server") from error


def _source(paths: list[str], bootstrap_server: str | None, topic: str | None) -> dict[str, str]:
    """Returns the options of the data source."""
    if bool(paths) == (bootstrap_server is not None):
        raise typer.BadParameter("give data directories, or --bootstrap-server")
    of_topic = {} if topic is None else {"topic": topic}
    if bootstrap_server is not None:
        return {"kafka.bootstrap.servers": bootstrap_server, **of_topic}
    if len(set(paths)) < len(paths):
        raise typer.BadParameter("each data directory once")
    return {"paths": json.dumps(paths), **of_topic}


def _checkpoints(
    paths: list[str], bootstrap_server: str | None, topic: str | None, security: Security
) -> LogCheckpoints:
    """Asks what is known of the logs besides their batches. Raises `typer.BadParameter`."""
    try:
        if bootstrap_server is not None:
            return read_cluster_facts(bootstrap_server, topic, security)
        _check_topic(paths, topic)
        return read_checkpoints(paths)
    except (NotADataDirectoryError, ClusterReadError, ConnectionFailedError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error


def _check_topic(paths: list[str], topic: str | None) -> None:
    """Raises `NotADataDirectoryError` if no directory has the topic: what is not read proves nothing."""
    found = {part.topic for path in paths for part in find_partitions(Path(path))}
    if topic is not None and topic not in found:
        raise NotADataDirectoryError(f"{', '.join(paths)}: there is no topic {topic}")


def _names(
    paths: list[str],
    bootstrap_server: str | None,
    security: Security,
    admin_servers: str | None,
) -> NameProducers:
    """Returns how the names of producers are looked up, once there is a finding about them."""

    def look_up(places: Collection[Place]) -> ProducerNames:
        wanted = {producer_id for _, _, producer_id in places}
        return ProducerNames(
            transactional_ids=ids_in_directories(paths, wanted)
            if bootstrap_server is None
            else ids_in_cluster(bootstrap_server, wanted, security),
            client_ids={} if admin_servers is None else client_ids(admin_servers, places),
        )

    return look_up
