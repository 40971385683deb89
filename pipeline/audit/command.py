"""`python -m echoless.spark audit`: reads, judges, prints the verdict, writes tables and report."""

from __future__ import annotations

import json
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from echoless.pipeline.audit.audit import EXPIRATION_MS_DEFAULT, audit
from echoless.pipeline.audit.duplicates import NoMetricsError, count_duplicates
from echoless.pipeline.audit.log_checkpoints import LogCheckpoints, read_checkpoints
from echoless.pipeline.audit.report import ReportFacts, write_report
from echoless.pipeline.audit.verdict import show_verdict
from echoless.pipeline.batches.data_directory import NotADataDirectoryError
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
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
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
    security = file_options(command_config, "--command-config")
    checked(security, "--command-config")
    source, checkpoints = _source(paths or [], bootstrap_server, topic)
    source |= security if bootstrap_server is not None else {}
    if output is not None and output.exists() and any(output.iterdir()):
        raise typer.BadParameter(f"{output} is not empty", param_hint="--output")
    duplicates = None if admin_server is None else _duplicates(admin_server)
    session = open_session("echoless audit", master=master)
    with tempfile.TemporaryDirectory(prefix="echoless-audit-") as temporary:
        tables = audit(
            session,
            source,
            output or Path(temporary),
            checkpoints=checkpoints,
            expiration_ms=expiration_ms,
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


def _source(
    paths: list[str], bootstrap_server: str | None, topic: str | None
) -> tuple[dict[str, str], LogCheckpoints]:
    """Returns the options of the data source, and the checkpoints of data directories."""
    if bool(paths) == (bootstrap_server is not None):
        raise typer.BadParameter("give data directories, or --bootstrap-server")
    of_topic = {} if topic is None else {"topic": topic}
    if bootstrap_server is not None:
        return {"kafka.bootstrap.servers": bootstrap_server, **of_topic}, LogCheckpoints.none()
    if len(set(paths)) < len(paths):
        raise typer.BadParameter("each data directory once")
    try:
        return {"paths": json.dumps(paths), **of_topic}, read_checkpoints(paths)
    except NotADataDirectoryError as error:
        raise typer.BadParameter(str(error)) from error
