"""`echoless accept-loss`: lets the next start truncate a damaged log, or create a missing one."""

from __future__ import annotations

from typing import Annotated

import typer

from echoless.cli.data_lock import data_directory, parse_partition
from echoless.storage.accepted_loss import accept


def accept_loss(
    data_dir: Annotated[str, typer.Argument(help="The data directory of a stopped broker.")],
    partition: Annotated[str, typer.Argument(metavar="TOPIC-PARTITION", help="Such as orders-0.")],
) -> None:
    """Accept that a partition has lost records; without that, the broker refuses to start."""
    with data_directory(data_dir, "echoless accept-loss") as (fs, path):
        accept(fs, path, parse_partition(partition))
    typer.echo(f"the next start opens {partition} with what is left of it, and cuts the rest off")
