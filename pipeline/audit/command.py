"""`python -m pipeline audit`: reads, judges, prints the verdict, writes Parquet and the report."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pipeline.audit.audit import EXPIRATION_MS_DEFAULT, audit
from pipeline.audit.promises import read_promises
from pipeline.audit.verdict import show_verdict
from pipeline.session import open_session


def audit_command(
    paths: Annotated[list[str], typer.Argument(help="Data directories, one for each replica.")],
    output: Annotated[
        Path | None, typer.Option(help="A new directory for the tables, as Parquet.")
    ] = None,
    expiration_ms: Annotated[
        int, typer.Option(help="The brokers' producer_id_expiration_ms.")
    ] = EXPIRATION_MS_DEFAULT,
    master: Annotated[str | None, typer.Option(help="Spark's master; local[*] by itself.")] = None,
) -> None:
    """Prove from batch headers that every record is stored once, and in order."""
    promises = read_promises(paths)
    session = open_session("echoless audit", master=master)
    with tempfile.TemporaryDirectory(prefix="echoless-audit-") as temporary:
        tables = audit(
            session,
            {"paths": json.dumps(paths)},
            output or Path(temporary),
            promises=promises,
            expiration_ms=expiration_ms,
        )
        console = Console(markup=False, highlight=False, emoji=False)
        if not show_verdict(tables, console):
            raise typer.Exit(1)
