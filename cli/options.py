"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated, Final

import typer

BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"

BootstrapServer = Annotated[
    str,
    typer.Option(
        envvar="ECHOLESS_BOOTSTRAP_SERVER",
        metavar="HOST:PORT[,...]",
        help="A broker to start from.",
    ),
]
ADMIN_DEFAULT: Final = "127.0.0.1:8080"

AdminAddress = Annotated[
    str,
    typer.Option(
        "--admin", envvar="ECHOLESS_ADMIN", metavar="HOST:PORT", help="A broker's admin port."
    ),
]
ProducerFilter = Annotated[
    int | None, typer.Option("--producer-id", min=0, help="Only batches of this producer.")
]
TopicFilter = Annotated[str | None, typer.Option("--topic", help="Only batches for this topic.")]
PartitionFilter = Annotated[
    int | None, typer.Option("--partition", min=0, help="Only batches for this partition.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
