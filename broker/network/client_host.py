"""The address of a client, the same on every kind of listener."""

from __future__ import annotations

from typing import Final

_MAPPED: Final = "::ffff:"


def client_host(host: str) -> str:
    """IPv4 as IPv4: on a listener for all interfaces of both versions the system writes it as `::ffff:10.0.0.1`.

    Limits and quotas name the client's own address.
    """
    return host.removeprefix(_MAPPED) if host.startswith(_MAPPED) and "." in host else host
