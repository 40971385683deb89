"""The security options of a command: those of `--command-config FILE`, as Kafka's own tools take it.

A password may be left out of the file: it then comes from the environment, or is asked for. It is never an
argument, which everyone on the machine could read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from echoless.client.properties import read_properties
from echoless.client.security import Security
from echoless.client.security_options import SecurityOptionError, security_of

PASSWORD_VARIABLE: Final = "ECHOLESS_SASL_PASSWORD"  # noqa: S105  the variable's name

SECRET_OF: Final = {
    "sasl.username": "sasl.password",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.credentials.client.secret",
}
"""Options that name a user or client, and the one with its password."""


def read_command_config(path: str) -> dict[str, str]:
    """Every option of the file. Raises `SecurityOptionError`."""
    try:
        return read_properties(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise SecurityOptionError(f"cannot read {path}: {reason}") from error


def command_security(
    path: str | None,
    ask: Callable[[str], str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Security:
    """The security that a file of options describes, as Kafka's tools take it; plain text if `path` is None.

    A password that the file leaves out comes from `ECHOLESS_SASL_PASSWORD` in `environment`, or from `ask`, which is
    called with the user. Raises `SecurityOptionError`.
    """
    return security_of(command_options(path, ask, environment))


def command_options(
    path: str | None,
    ask: Callable[[str], str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """The options of the file, with a password. Raises `SecurityOptionError`."""
    return {} if path is None else with_password(read_command_config(path), path, ask, environment)


def with_password(
    options: dict[str, str],
    path: str,
    ask: Callable[[str], str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Adds the password that the options of a file leave out. Raises `SecurityOptionError`."""
    for name, secret in SECRET_OF.items():
        user = options.get(name)
        if not user or {secret, "sasl.jaas.config"} & options.keys():
            continue
        password = environment.get(PASSWORD_VARIABLE) or (ask(user) if ask is not None else "")
        if not password:
            raise SecurityOptionError(f"{path} has no {secret}: add it, or set {PASSWORD_VARIABLE}")
        options[secret] = password
    return options
