"""Access to a broker's admin port, for commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cli.errors import CommandError

if TYPE_CHECKING:
    from testkit.admin import Admin


@contextmanager
def admin_port(address: str) -> Iterator[Admin]:
    """The port at `HOST:PORT`. Its errors are raised as `CommandError`."""
    from testkit.admin import Admin, AdminError

    check_admin_address(address)
    try:
        yield Admin(address)
    except AdminError as error:
        raise CommandError(str(error)) from error


def check_admin_address(address: str) -> None:
    """Raises `CommandError` for an invalid address."""
    from broker.config.values import parse_address

    try:
        parse_address(address)
    except ValueError:
        raise CommandError(f"--admin: takes HOST:PORT, not {address!r}") from None
