"""Access to a broker's admin port, for commands."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from echoless.broker.config.loading import ConfigError
from echoless.broker.config.values import parse_address
from echoless.cli.errors import CommandError
from echoless.cli.options import AdminPort
from echoless.client.command_config import read_command_config
from echoless.client.connection_errors import AuthenticationError
from echoless.client.security import Tls
from echoless.client.security_options import SecurityOptionError, security_of

if TYPE_CHECKING:
    from ssl import SSLContext

    from echoless.testkit.admin import Admin, AdminError

_TOKEN_VARIABLE: Final = "ECHOLESS_ADMIN_TOKEN"  # noqa: S105 - the variable's name
_HTTPS: Final = "https://"


@contextmanager
def admin_port(place: AdminPort) -> Iterator[Admin]:
    """The port. Its errors are raised as `CommandError`."""
    from echoless.testkit.admin import Admin, AdminError

    ports = admin_ports([place.admin], place.admin_token_file, place.command_config)
    try:
        yield Admin(ports.addresses[0], token=ports.token, tls=ports.tls)
    except AdminError as error:
        raise refused(error) from error


def refused(error: AdminError) -> CommandError:
    """The error of a command: the answer of the port, or what to look at if there was none."""
    if error.status is not None:
        return CommandError(str(error))
    return CommandError(f"{error}; is the broker running, and is this its --admin-listen address?")


class AdminPorts(NamedTuple):
    """Ports of several brokers, which all take the same."""

    addresses: list[str]
    token: str | None
    tls: SSLContext | None


def admin_ports(
    places: list[str], token_file: Path | None, command_config: str | None
) -> AdminPorts:
    """From the values of the options. Raises `CommandError`."""
    return AdminPorts(
        [_address(place) for place in places],
        _token(token_file),
        _tls(places, command_config),
    )


def _address(text: str) -> str:
    """`HOST:PORT`, without the scheme. Raises `CommandError`."""
    address = text.removeprefix(_HTTPS)
    try:
        parse_address(address)
    except ValueError:
        raise CommandError(f"--admin: takes [{_HTTPS}]HOST:PORT, not {text!r}") from None
    return address


def _token(file: Path | None) -> str | None:
    """The first token of the file, or else the one in the environment. Raises `CommandError`."""
    if file is None:
        return os.environ.get(_TOKEN_VARIABLE) or None
    from echoless.broker.authentication.admin_tokens import read_tokens

    try:
        return read_tokens(str(file))[0].secret
    except ConfigError as error:
        raise CommandError(f"--{error}".replace("_", "-", 2)) from None


def _tls(addresses: list[str], command_config: str | None) -> SSLContext | None:
    """The TLS of ports given with `https://`: all of them, or none. Raises `CommandError`."""
    encrypted = [address.startswith(_HTTPS) for address in addresses]
    if not any(encrypted):
        return None
    if not all(encrypted):
        raise CommandError(f"--admin: takes {_HTTPS} for all of them, or for none")
    from echoless.client.tls import tls_context

    try:
        options = {} if command_config is None else read_command_config(command_config)
        tls = {name: value for name, value in options.items() if name.startswith("ssl.")}
        security = security_of({**tls, "security.protocol": "SSL"})
        return tls_context(security.tls or Tls())
    except (SecurityOptionError, AuthenticationError) as error:
        raise CommandError(f"--command-config: {error}") from error
