"""Security options among the arguments of a job's command: in a file, never as an argument, which everyone could read.

The file is one of Kafka's own tools (`sasl.mechanism`), or has Spark's names (`kafka.sasl.mechanism`); credentials of the
ledger's store (`ledger.*`) can be there, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import typer

from echoless.client.command_config import read_command_config, with_password
from echoless.client.security import Security
from echoless.client.security_options import SecurityOptionError, is_about_security
from echoless.pipeline.exactly_once.store_settings import STORE_PREFIX
from echoless.pipeline.security import PREFIX, is_security_option, security_in

_SECRETS: Final = ("password", "jaas", ".key", ".pem", "certificate", "secret")
_STORE_SECRETS: Final = ("key", "secret", "password", "token", "sas", "service_account")
_TOKEN: Final = "kafka.sasl.oauthbearer.token"  # noqa: S105  the option's name


def file_options(path: str | None, option: str, *, has_ledger: bool = False) -> dict[str, str]:
    """Reads the security options in a file, by a job's names; with `has_ledger` also those of its store.

    Raises `typer.BadParameter`.
    """
    if path is None:
        return {}
    try:
        found = read_command_config(path)
        own = with_password(_short_names(found, path), path)
    except SecurityOptionError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
    store = {name: value for name, value in found.items() if name.startswith(STORE_PREFIX)}
    return {PREFIX + name: value for name, value in own.items()} | (store if has_ledger else {})


def _short_names(options: Mapping[str, str], path: str) -> dict[str, str]:
    """Returns the security options by the client's names. Raises `SecurityOptionError`."""
    found: dict[str, str] = {}
    for name, value in options.items():
        short = name.removeprefix(PREFIX)
        if is_about_security(short) and found.setdefault(short, value) != value:
            raise SecurityOptionError(f"{path}: {short} and {PREFIX}{short} differ")
    return found


def checked(options: Mapping[str, str], option: str) -> Security:
    """Reads the security options among a command's. Raises `typer.BadParameter`."""
    try:
        return security_in(options)
    except SecurityOptionError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def refuse_secrets(arguments: Mapping[str, str], option: str, remedy: str) -> None:
    """Refuses secrets among a command's arguments. Raises `typer.BadParameter`."""
    for name in arguments:
        if _is_secret(name.lower()):
            raise typer.BadParameter(
                f"everyone on this machine could read {name}: put it in a file, {remedy}",
                param_hint=option,
            )


def _is_secret(name: str) -> bool:
    if name.startswith(STORE_PREFIX):
        return any(part in name for part in _STORE_SECRETS)
    return is_security_option(name) and (name == _TOKEN or any(part in name for part in _SECRETS))
