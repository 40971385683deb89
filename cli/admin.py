"""Access to a broker's admin port, for commands."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cli.errors import CommandError

if TYPE_CHECKING:
    from testkit.admin import Admin

_TOKEN_VARIABLE: Final = "ECHOLESS_ADMIN_TOKEN"  # noqa: S105 - the variable's name


@contextmanager
def admin_port(address: str, token_file: Path | None = None) -> Iterator[Admin]:
    """The port at `HOST:PORT`. Its errors are raised as `CommandError`."""
    from testkit.admin import Admin, AdminError

    check_admin_address(address)
    try:
        yield Admin(address, token=admin_token(token_file))
    except AdminError as error:
        raise CommandError(str(error)) from error


def admin_token(file: Path | None) -> str | None:
    """The first token of the file, or else the one in the environment. Raises `CommandError`."""
    if file is None:
        return os.environ.get(_TOKEN_VARIABLE) or None
    from broker.authentication.admin_tokens import read_tokens
    from broker.config.loading import ConfigError

    try:
        return read_tokens(str(file))[0].secret
    except ConfigError as error:
        raise CommandError(f"--{error}".replace("_", "-", 2)) from None


def check_admin_address(address: str) -> None:
    """Raises `CommandError` for an invalid address."""
    from broker.config.values import parse_address

    try:
        parse_address(address)
    except ValueError:
        raise CommandError(f"--admin: takes HOST:PORT, not {address!r}") from None
