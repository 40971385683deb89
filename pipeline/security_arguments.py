"""Security options among the arguments of a job's command: in a file, never as an argument, which everyone could read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import typer

from echoless.client.command_config import command_options
from echoless.client.security import Security
from echoless.client.security_options import SecurityOptionError, is_about_security
from echoless.pipeline.security import PREFIX, is_security_option, security_in

_SECRETS: Final = ("password", "jaas", ".key", ".pem", "certificate", "secret")
_TOKEN: Final = "kafka.sasl.oauthbearer.token"  # noqa: S105  the option's name


def file_options(path: str | None, option: str) -> dict[str, str]:
    """Reads a file of options; returns the security options by a job's names. Raises `typer.BadParameter`."""
    try:
        found = command_options(path)
    except SecurityOptionError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
    return {PREFIX + name: value for name, value in found.items() if is_about_security(name)}


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
