"""The place where users and ACLs are: a running cluster, or the coordinator itself before any broker runs."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from echoless.cli.errors import CommandError
from echoless.cli.options import BOOTSTRAP_DEFAULT, BootstrapServer, BrokerOptions, CommandConfig

DataDir = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="The data directory of a stopped broker that stands alone, or of a new one.",
    ),
]
CoordinatorUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The coordinator itself, as for serve: zookeeper://HOST:PORT,.../CHROOT.",
    ),
]


class TargetOptions(NamedTuple):
    """A coordinator, if one is named, or a running cluster. A group of options."""

    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT
    command_config: CommandConfig = None
    data_dir: DataDir = None
    coordinator: CoordinatorUrl = None

    @property
    def broker(self) -> BrokerOptions:
        return BrokerOptions(self.bootstrap_server, self.command_config)

    @property
    def is_coordinator(self) -> bool:
        """Whether it is the coordinator itself. Raises `CommandError` if the options contradict each other."""
        if self.data_dir is not None and self.coordinator is not None:
            raise CommandError("either --data-dir or --coordinator, not both")
        if self.coordinator is not None and not self.coordinator.startswith("zookeeper://"):
            raise CommandError(
                f"--coordinator: takes zookeeper://HOST:PORT, not {self.coordinator!r}"
            )
        return self.data_dir is not None or self.coordinator is not None
