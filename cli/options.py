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
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
