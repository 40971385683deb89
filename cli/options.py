"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, NamedTuple

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
CommandConfig = Annotated[
    str | None,
    typer.Option(
        envvar="ECHOLESS_COMMAND_CONFIG",
        metavar="FILE",
        help="Properties with security.protocol, sasl.* and ssl.*, as Kafka's tools take them.",
    ),
]


class BrokerOptions(NamedTuple):
    """A running cluster, and how to be let in. A group of options."""

    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT
    command_config: CommandConfig = None


ADMIN_DEFAULT: Final = "127.0.0.1:8080"

AdminAddress = Annotated[
    str,
    typer.Option(
        "--admin",
        envvar="ECHOLESS_ADMIN",
        metavar="[https://]HOST:PORT",
        help="A broker's admin port.",
    ),
]
AdminAddresses = Annotated[
    list[str] | None,
    typer.Option(
        "--admin",
        metavar="[https://]HOST:PORT",
        help="A broker's admin port; once for each.",
        envvar="ECHOLESS_ADMIN",
    ),
]
AdminTokenFile = Annotated[
    Path | None,
    typer.Option(
        "--admin-token-file",
        envvar="ECHOLESS_ADMIN_TOKEN_FILE",
        metavar="FILE",
        help="The admin port's token: the first in this file. (Or: ECHOLESS_ADMIN_TOKEN.)",
    ),
]
AdminConfig = Annotated[
    str | None,
    typer.Option(
        "--command-config",
        envvar="ECHOLESS_COMMAND_CONFIG",
        metavar="FILE",
        help="Properties with ssl.*, for an admin port with TLS (https://).",
    ),
]


class AdminPort(NamedTuple):
    """A broker's admin port, and how to be let in. A group of options."""

    admin: AdminAddress = ADMIN_DEFAULT
    admin_token_file: AdminTokenFile = None
    command_config: AdminConfig = None


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
