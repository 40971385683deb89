"""Requests to brokers over connections that a Python process keeps between the tasks that it runs.

A connection in use is not among them. Invariant: a connection is kept only after a whole answer. A process that was forked does not
use those of its parent.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from echoless.client.cluster import parse_addresses
from echoless.client.connection import AuthenticationError, BrokerConnection, ConnectionFailedError
from echoless.client.security import Security
from echoless.pipeline.reading.options import ReaderOptions

_KEPT_MAX: Final = 8
_KEPT_S: Final = 60.0
Address = tuple[str, int]


class _Kept(NamedTuple):
    process: int
    address: Address
    security: Security
    since: float
    connection: BrokerConnection


_kept: list[_Kept] = []
"""The one that was used last is at the end. Tasks of a Python worker run one after the other."""


def ask(options: ReaderOptions, address: Address, api: str, fields: Mapping[str, Any]) -> Any:
    """Sends a request and returns kio's answer. Raises `ConnectionFailedError`."""
    kept = _take(address, options.security)
    if kept is not None:
        try:
            return _exchange(options, address, kept, api, fields)
        except AuthenticationError:
            raise
        except ConnectionFailedError:
            pass  # the broker may have closed it since
    connection = BrokerConnection.open(
        *address, timeout_s=options.request_timeout_s, security=options.security
    )
    return _exchange(options, address, connection, api, fields)


def ask_any(options: ReaderOptions, api: str, fields: Mapping[str, Any]) -> Any:
    """Asks the first bootstrap server that answers. Raises `ConnectionFailedError`."""
    failure: ConnectionFailedError | None = None
    for address in parse_addresses(options.bootstrap_servers):
        try:
            return ask(options, (address.host, address.port), api, fields)
        except AuthenticationError:
            raise
        except ConnectionFailedError as error:
            failure = failure or error
    assert failure is not None, "there is at least one address"
    raise failure


def close_kept() -> None:
    """Closes all connections."""
    while _kept:
        _kept.pop().connection.close()


def _exchange(
    options: ReaderOptions,
    address: Address,
    connection: BrokerConnection,
    api: str,
    fields: Mapping[str, Any],
) -> Any:
    try:
        answer = connection.request(api, fields)
    except BaseException:
        connection.close()
        raise
    _kept.append(_Kept(os.getpid(), address, options.security, time.monotonic(), connection))
    while len(_kept) > _KEPT_MAX:
        _kept.pop(0).connection.close()
    return answer


def _take(address: Address, security: Security) -> BrokerConnection | None:
    oldest = time.monotonic() - _KEPT_S
    while _kept and _kept[0].since < oldest:
        _kept.pop(0).connection.close()
    for index in range(len(_kept) - 1, -1, -1):
        one = _kept[index]
        if (one.process, one.address, one.security) == (os.getpid(), address, security):
            return _kept.pop(index).connection
    return None
