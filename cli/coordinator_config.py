"""The configuration of commands that change the coordinator itself, while no broker runs or without asking one."""

from __future__ import annotations

import os

from echoless.broker.config.loading import Config, ConfigError, load_config
from echoless.cli.errors import CommandError


def coordinator_config(data_dir: str | None, coordinator: str | None) -> Config:
    """The place is given; how to talk to ZooKeeper may be in the environment, as for `serve`.

    Raises `CommandError`.
    """
    arguments = [f"--coordinator={coordinator or 'embedded'}"]
    if data_dir is not None:
        arguments.append(f"--data-dir={data_dir}")
    try:
        return load_config(arguments, os.environ)
    except ConfigError as error:
        raise CommandError(str(error)) from error
