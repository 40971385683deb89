"""Security options of jobs, by Spark's names: those of the client after `kafka.`.

Secrets come in options or files, never as an argument of a command, which everyone on the machine could read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import typer

from echoless.client.command_config import command_options
from echoless.client.security import Security
from echoless.client.security_options import (
    SecurityOptionError,
    is_about_security,
    java_options,
    security_of,
)

_PREFIX: Final = "kafka."
_SECRETS: Final = ("password", "jaas", ".key", ".pem", "certificate", "secret")
_TOKEN: Final = "kafka.sasl.oauthbearer.token"  # noqa: S105  the option's name


def is_security_option(name: str) -> bool:
    """Whether `name` (`kafka.sasl.username`) is about security."""
    key = name.lower()
    return key.startswith(_PREFIX) and is_about_security(key.removeprefix(_PREFIX))


def security_in(options: Mapping[str, str]) -> Security:
    """Reads the security options among a job's. Raises `SecurityOptionError`, with the client's names."""
    return security_of(
        {
            name.lower().removeprefix(_PREFIX): value
            for name, value in options.items()
            if is_security_option(name)
        }
    )


def spark_options(security: Security) -> dict[str, str]:
    """Returns the options for Spark's own Kafka source. Raises `SecurityOptionError`."""
    return {_PREFIX + name: value for name, value in java_options(security).items()}


def file_options(path: str | None, option: str) -> dict[str, str]:
    """Reads a file of options; returns the security options by a job's names. Raises `typer.BadParameter`."""
    try:
        found = command_options(path)
    except SecurityOptionError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
    return {_PREFIX + name: value for name, value in found.items() if is_about_security(name)}


def checked(options: Mapping[str, str], option: str) -> Security:
    """Reads the security options among a command's. Raises `typer.BadParameter`."""
    try:
        return security_in(options)
    except SecurityOptionError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def refuse_secrets(arguments: Mapping[str, str], option: str, remedy: str) -> None:
    """Refuses secrets among a command's arguments. Raises `typer.BadParameter`."""
    for name in arguments:
        if is_security_option(name) and _is_secret(name.lower()):
            raise typer.BadParameter(
                f"everyone on this machine could read {name}: put it in a file, {remedy}",
                param_hint=option,
            )


def _is_secret(name: str) -> bool:
    return name == _TOKEN or any(part in name for part in _SECRETS)
