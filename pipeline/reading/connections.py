"""Requests to brokers over connections that a Python process keeps between the tasks that it runs.

A connection in use is not among them. Invariant: a connection is kept only after a whole answer. A process that was forked does not
use those of its parent.

Questions about the cluster go to any of its brokers: first to the one that answered last, and also to those that only metadata has
named, so a broker that is down costs time once, even if it is the only bootstrap server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from echoless.client.cluster import parse_addresses
from echoless.client.connection import AuthenticationError, BrokerConnection, ConnectionFailedError
from echoless.client.security import Security
from echoless.pipeline.reading.options import ReaderOptions

_KEPT_MAX: Final = 8
_KEPT_S: Final = 60.0
_CONNECT_S: Final = 10.0
"""Time to reach a broker; another one may answer at once."""
_NAMED_MAX: Final = 8
"""Brokers that metadata has named, of which questions go to so many if the bootstrap servers do not answer."""
Address = tuple[str, int]
_Request = tuple[str, Mapping[str, Any], int | None]
"""The arguments of `BrokerConnection.request`."""


class _Kept(NamedTuple):
    process: int
    address: Address
    security: Security
    since: float
    connection: BrokerConnection


_kept: list[_Kept] = []
"""The one that was used last is at the end. Tasks of a Python worker run one after the other."""
_servers: dict[str, list[Address]] = {}
"""Brokers to ask about a cluster, by its bootstrap servers: the next one first."""
_named: set[str] = set()
"""Bootstrap servers of clusters that have answered."""


def ask(
    options: ReaderOptions,
    address: Address,
    api: str,
    fields: Mapping[str, Any],
    version_max: int | None = None,
) -> Any:
    """Sends a request and returns kio's answer. Raises `ConnectionFailedError`."""
    kept = _take(address, options.security)
    if kept is not None:
        try:
            return _exchange(options, address, kept, (api, fields, version_max))
        except AuthenticationError:
            raise
        except ConnectionFailedError:
            pass  # the broker may have closed it since
    connection = BrokerConnection.open(
        *address,
        timeout_s=options.request_timeout_s,
        security=options.security,
        connect_timeout_s=_CONNECT_S,
    )
    return _exchange(options, address, connection, (api, fields, version_max))


def ask_any(options: ReaderOptions, api: str, fields: Mapping[str, Any]) -> Any:
    """Asks brokers of the cluster until one answers. Raises `ConnectionFailedError`."""
    servers = _servers_of(options)
    failure: ConnectionFailedError | None = None
    for address in tuple(servers):
        try:
            return ask(options, address, api, fields)
        except AuthenticationError:
            raise
        except ConnectionFailedError as error:
            failure = failure or error
            ask_another(options)
    assert failure is not None, "there is at least one address"
    raise failure


def ask_another(options: ReaderOptions) -> None:
    """Makes the next `ask_any` begin with another broker: this one may know less, such as one that has just started."""
    servers = _servers_of(options)
    servers.append(servers.pop(0))


def note_brokers(options: ReaderOptions, brokers: Collection[Address]) -> None:
    """Takes the cluster's brokers, as metadata names them, before bootstrap servers that it does not name.

    The one that has answered just now stays the first.
    """
    servers, bootstrap = _servers_of(options), _bootstrap(options)
    _named.add(options.bootstrap_servers)
    first, *others = servers
    kept = [one for one in others if one in brokers or one in bootstrap]
    room = max(len(bootstrap) + _NAMED_MAX - len(kept) - 1, 0)
    new = sorted(set(brokers).difference([first, *kept]))[:room]
    servers[:] = [first, *sorted([*kept, *new], key=lambda one: one not in brokers)]


def has_another(options: ReaderOptions) -> bool:
    """Whether there is a second broker to ask, as far as is known."""
    return len(_servers_of(options)) > 1


def has_met(options: ReaderOptions) -> bool:
    """Whether the cluster has answered this process before."""
    return options.bootstrap_servers in _named


def _servers_of(options: ReaderOptions) -> list[Address]:
    return _servers.setdefault(options.bootstrap_servers, _bootstrap(options))


def _bootstrap(options: ReaderOptions) -> list[Address]:
    return [(one.host, one.port) for one in parse_addresses(options.bootstrap_servers)]


def close_kept() -> None:
    """Closes all connections."""
    while _kept:
        _kept.pop().connection.close()


def _exchange(
    options: ReaderOptions, address: Address, connection: BrokerConnection, request: _Request
) -> Any:
    try:
        answer = connection.request(*request)
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
