"""`python -m echoless.spark ledger LOCATION`: the last batches of a sink, without Spark."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.exactly_once.ledger_metrics import read_metrics
from echoless.pipeline.security_arguments import file_options
from echoless.pipeline.streaming.job import fail

_COLUMNS = ("batch", "tasks", "rows", "stored before", "ledger requests", "waits for brokers (s)")


def ledger_command(
    location: Annotated[
        str, typer.Argument(help="The ledger: of a stream, CHECKPOINT/echoless-ledger.")
    ],
    *,
    name: Annotated[str, typer.Option(help="The sink's name.")] = "stream",
    config: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Properties with options of the ledger's store."),
    ] = None,
) -> None:
    """Show the last batches that a sink has stored."""
    try:
        found = read_metrics(location, name, file_options(config, "--config", has_ledger=True))
    except SinkError as error:
        fail(str(error))
    if not found:
        fail(f"{location} has no complete batch of a sink {name}")
    table = Table(*_COLUMNS, box=None)
    for one in found:
        counts = (one.batch_id, one.tasks, one.rows, one.repeats, one.ledger_requests)
        table.add_row(*(f"{count:,}" for count in counts), f"{one.broker_wait_s:.3f}")
    Console(highlight=False).print(table)
