"""`echoless coordinator catch-up`: for a coordinator whose data was restored from an old copy."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from echoless.broker.tree.node_tree import CoordinationError
from echoless.cli.coordinator_config import coordinator_config
from echoless.cli.errors import CommandError
from echoless.protocol.errors import KafkaError

app = typer.Typer(no_args_is_help=True, help="Repair the coordinator's data.")


@app.callback()
def coordinator() -> None:
    """Repair the coordinator's data."""


@app.command("catch-up")
def catch_up(
    data_dir: Annotated[str, typer.Argument(help="The data directory of a stopped broker.")],
    coordinator: Annotated[
        str, typer.Option(help="As for serve: embedded, or zookeeper://HOST:PORT,.../CHROOT.")
    ] = "embedded",
) -> None:
    """Raise producer ids and leader epochs in the coordinator to those that a data directory proves.

    A broker that finds an old copy refuses to start. If there is no newer copy, run this for the
    data directory of every broker while all of them are stopped. Everything else that the
    coordinator has lost (topics, configurations, in-sync replicas) does not come back.
    """
    from echoless.broker.cluster.catching_up import catch_up_coordinator

    config = coordinator_config(data_dir.rstrip("/"), coordinator)
    try:
        done = asyncio.run(catch_up_coordinator(config))
    except (CoordinationError, KafkaError) as error:
        raise CommandError(str(error)) from error
    for line in done or ["nothing to raise: the coordinator is as new as this data directory"]:
        typer.echo(line)
