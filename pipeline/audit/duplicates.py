"""Number of repeats that the brokers have recognised and not stored again."""

from __future__ import annotations

import re
from http.client import HTTPConnection, HTTPException
from typing import Final

from echoless.client.cluster import BrokerAddress, parse_addresses

_COUNTER: Final = re.compile(
    rb"^echoless_duplicates_total(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE
)
_TIMEOUT_S: Final = 10.0


class NoMetricsError(Exception):
    """A broker's admin port does not report the number; the message names the broker."""


def count_duplicates(admin_servers: str) -> int:
    """Adds up the brokers' `/metrics`, each since its start. Raises `NoMetricsError`."""
    return sum(map(_count_of, parse_addresses(admin_servers)))


def _count_of(address: BrokerAddress) -> int:
    connection = HTTPConnection(address.host, address.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        counts = _COUNTER.findall(connection.getresponse().read())
    except (OSError, HTTPException) as error:
        raise NoMetricsError(f"{address.host}:{address.port}: {error}") from error
    finally:
        connection.close()
    if not counts:
        raise NoMetricsError(f"{address.host}:{address.port} is not an admin port of Echoless")
    return int(sum(map(float, counts)))
