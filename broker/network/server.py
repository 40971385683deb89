"""Listening sockets and the connections behind them.

Sockets are bound before anything slow happens, so that the ready line can name their ports, but listen
only once the broker can answer; until then clients that connect are refused and try again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from echoless.broker.config.listener_names import NATIVE, PLAINTEXT
from echoless.broker.config.listener_overrides import MOST
from echoless.broker.config.loading import Address, Config
from echoless.broker.config.values import INT32_MAX
from echoless.broker.descriptors import descriptor_shares
from echoless.broker.essential_task import reported_task
from echoless.broker.limited_log import LimitedLog
from echoless.broker.metrics import Metrics
from echoless.broker.network.client_host import client_host
from echoless.broker.network.connection import Connection, Entrance
from echoless.broker.network.memory_budget import MemoryBudget
from echoless.broker.network.open_connections import OpenConnections, PortConnections
from echoless.broker.network.reading import Dispatch
from echoless.broker.network.request import ANONYMOUS
from echoless.broker.network.unsent_answers import UnsentAnswers

if TYPE_CHECKING:
    from echoless.broker.network.tls_acceptor import Handshake, TlsAcceptor, TlsSettings

limited: Final = LimitedLog(logging.getLogger(__name__))

BACKLOG: Final = 512
DRAIN_S: Final = 1.5
"""Time for the requests in flight to be answered when the broker stops."""


class Rates(Protocol):
    """The rates at which connections may be made (`broker/quotas/connection_rates.py`)."""

    @property
    def is_limited(self) -> bool: ...

    def refusal_of(self, host: str) -> str | None: ...

    def entrance(self, listener: str) -> Entrance | None: ...


class ListenError(Exception):
    """An address cannot be listened on; the message names the option, the address and the reason."""


def bind(option: str, address: Address, *, listens: bool = True) -> socket.socket:
    """A socket bound to that address. Raises `ListenError`.

    Unless it `listens`, clients that connect are refused, and try again, until a `Server` starts on it.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        if listens:
            listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(f"{option}: cannot listen on {address}: {error.strerror}") from error
    listener.setblocking(False)
    return listener


def bound_address(listener: socket.socket) -> Address:
    """The address the socket is actually bound to: port 0 has become a real port."""
    host, port = listener.getsockname()[:2]
    return Address(host, port)


def most_connections(connections_max: int) -> int:
    """Number of connections to accept: half of the descriptors are always left for files."""
    return min(connections_max, descriptor_shares().connections)


class Server:
    """One port: accepts connections and hands their frames to `dispatch`."""

    def __init__(
        self,
        listener: socket.socket,
        dispatch: Dispatch,
        *,
        listener_name: str = PLAINTEXT,
        config: Config,
        budget: MemoryBudget,
        unsent: UnsentAnswers,
        metrics: Metrics,
        connection_ids: Iterator[int] | None = None,
        all_open: OpenConnections | None = None,
        tls: TlsSettings | None = None,
        require_login: Callable[[Connection], None] | None = None,
        rates: Rates | None = None,
    ) -> None:
        """`connection_ids`, `all_open` and `rates` are shared by the ports of a broker.

        So each id names one connection, and an address is counted over both ports.
        """
        self._listener = listener
        self._listener_name = listener_name
        self.dispatch = dispatch
        self.route: Callable[[Connection], Dispatch] | None = None
        """Chooses the dispatcher of a new connection; if None, `dispatch`. Set while faults are active."""
        self._config = config
        self._budget = budget
        self._unsent = unsent
        self.metrics = metrics
        self._all_open = OpenConnections() if all_open is None else all_open
        self._own_open = OpenConnections()
        """Connections of this port, handshakes among them."""
        self.connections: set[Connection] = PortConnections(self._all_open, self._own_open)
        """The open connections. Nothing may depend on their order."""
        self._connection_ids = itertools.count(1) if connection_ids is None else connection_ids
        self._connections_max = most_connections(config.connections_max)
        self._per_host_max = dict(config.connections_max_per_ip_overrides)
        """With `_connections_max` and `_entrance` brought up to date by `settings_changed`."""
        self._tls = tls
        self._require_login = require_login
        self._rates = rates
        self._is_of_brokers = listener_name == NATIVE
        self._entrance = None if rates is None else rates.entrance(listener_name)
        self._own_max: int | None = config.listener_overrides.get(listener_name, {}).get(MOST)
        self._server: asyncio.Server | TlsAcceptor | None = None

    async def settings_changed(self, _names: frozenset[str]) -> None:
        """Accepts new connections by the new settings; open ones stay."""
        self._connections_max = most_connections(self._config.connections_max)
        self._per_host_max = dict(self._config.connections_max_per_ip_overrides)
        if self._rates is not None:
            self._entrance = self._rates.entrance(self._listener_name)

    async def start(self) -> None:
        """Starts accepting. Raises `ListenError` if another process took the address first."""
        loop = asyncio.get_running_loop()
        try:
            self._listener.listen(BACKLOG)
        except OSError as error:
            address = bound_address(self._listener)
            raise ListenError(f"cannot listen on {address}: {error.strerror}") from error
        if self._tls is None:
            make = self._accept
            self._server = await loop.create_server(make, sock=self._listener, backlog=BACKLOG)
        else:
            self._server = self._tls_acceptor(self._tls)

    def _tls_acceptor(self, tls: TlsSettings) -> TlsAcceptor:
        from echoless.broker.network.tls_acceptor import TlsAcceptor

        return TlsAcceptor(
            self._listener,
            tls,
            self.make_connection,
            refusal_of=self.logged_refusal_of,
            begun=self._count_handshake,
            ended=self._count_end_of_handshake,
        )

    def _count_handshake(self, handshake: Handshake) -> None:
        self.metrics.connections_open += 1
        self._all_open.add(handshake)
        self._own_open.add(handshake)

    def _count_end_of_handshake(self, handshake: Handshake) -> None:
        self.metrics.connections_open -= 1
        self._all_open.discard(handshake)
        self._own_open.discard(handshake)

    def _accept(self) -> asyncio.BaseProtocol:
        is_limited = (
            self._config.connections_max_per_ip < INT32_MAX
            or self._per_host_max
            or self._own_max is not None
            or (self._rates is not None and self._rates.is_limited)
        )
        if self._is_full or is_limited or self._require_login is not None:
            return _Newcomer(self)
        return self.make_connection()

    @property
    def _is_full(self) -> bool:
        return self.metrics.connections_open >= self._connections_max

    @property
    def _knows_clients(self) -> bool:
        """Whether clients have to show who they are."""
        return self._require_login is not None or self._tls is not None

    def refusal_of(self, host: str) -> str | None:
        """Why no connection is accepted from this address now; None if one is."""
        per_host_max = self._per_host_max.get(host, self._config.connections_max_per_ip)
        if self._all_open.count(host) >= per_host_max:
            return f"{per_host_max} of this address are open (connections_max_per_ip)"
        strangers_max = min(
            self._config.connections_max_unauthenticated_per_ip, self._connections_max // 2 or 1
        )
        if self._knows_clients and self._all_open.strangers(host) >= strangers_max:
            return (
                f"{strangers_max} of this address have not logged in, or not finished their TLS "
                "handshake (connections_max_unauthenticated_per_ip)"
            )
        if self._is_full and not self._all_open.make_room_for(host):
            return f"{self._connections_max} are open"
        is_full = self._own_max is not None and self._own_open.total >= self._own_max
        if is_full and not self._own_open.make_room_for(host):
            return f"{self._own_max} are open on {self._listener_name} ({MOST} of its table)"
        return None if self._rates is None else self._rates.refusal_of(host)

    def logged_refusal_of(self, host: str, port: int) -> str | None:
        """`refusal_of`, counted and logged."""
        reason = self.refusal_of(host)
        if reason is not None:
            self.metrics.connections_refused_total += 1
            message = "refusing a connection from %s:%s: %s"
            limited.log(logging.WARNING, host, message, host, port, reason)
        return reason

    def make_connection(self, principal: str = ANONYMOUS) -> Connection:
        """The connection for a client that was accepted."""
        metrics = self.metrics
        metrics.connections_accepted_total += 1
        connection = Connection(
            self.dispatch,
            connection_id=next(self._connection_ids),
            listener_name=self._listener_name,
            principal=principal,
            frame_size_max=self._config.request_size_max,
            budget=self._budget,
            unsent=self._unsent,
            connections=self.connections,
            metrics=metrics,
            latencies=None if self._is_of_brokers else metrics.latencies,
        )
        if self._require_login is not None:
            self._require_login(connection)
            connection.on_admitted = self._all_open.admitted
        if self.route is not None:
            connection.dispatch = self.route(connection)
        connection.entrance = self._entrance
        return connection

    def close_idle(self) -> None:
        """Closes connections that have been silent for longer than `connections_max_idle_ms`."""
        idle_ms = self._config.connections_max_idle_ms
        if idle_ms < 0:
            return
        oldest = time.monotonic() - idle_ms / 1000
        for connection in [one for one in self.connections if one.is_idle_since(oldest)]:
            self.metrics.connections_idle_closed_total += 1
            connection.close(f"silent for more than {idle_ms} ms")

    async def stop(self, within_s: float = DRAIN_S) -> None:
        """Stops accepting, answers what is in flight, and closes what is left after `within_s`."""
        if self._server is not None:
            self._server.close()
        connections = list(self.connections)
        if not connections:
            return
        drains = [
            reported_task(connection.drain(), "draining of a connection")
            for connection in connections
        ]
        _, late = await asyncio.wait(drains, timeout=within_s)
        for drain in late:
            drain.cancel()
        for connection in connections:
            connection.close()


class _Newcomer(asyncio.Protocol):
    """A connection that may have to be refused, depending on where it comes from."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)  # it may be gone
        if self._server.logged_refusal_of(client_host(host), port) is None:
            connection = self._server.make_connection()
            transport.set_protocol(connection)
            connection.connection_made(transport)
        else:
            transport.close()
