"""The commands of `python -m echoless.spark`, each defined in a file or package of its own."""

from __future__ import annotations

import typer

from echoless.pipeline.audit.command import audit_command
from echoless.pipeline.fetch_connector import fetch_connector_command
from echoless.pipeline.ingest.command import ingest_command
from echoless.pipeline.ledger_command import ledger_command
from echoless.pipeline.mirror.command import mirror_command
from echoless.pipeline.package import package_command

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def pipeline() -> None:
    """Spark jobs around exactly-once delivery."""


app.command("audit")(audit_command)
app.command("mirror")(mirror_command)
app.command("ingest")(ingest_command)
app.command("ledger")(ledger_command)
app.command("fetch-connector")(fetch_connector_command)
app.command("package")(package_command)
