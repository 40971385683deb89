"""The connection limit of the admin port.

At the limit, the oldest connection without a request makes room; if each has a request, as those that
follow decisions do, the new connection is refused.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiohttp import web

from echoless.broker.admin.protocol import HttpProtocol
from echoless.broker.limited_log import LimitedLog
from echoless.broker.network.request import ANONYMOUS

if TYPE_CHECKING:
    from echoless.broker.network.tls_acceptor import Handshake, TlsAcceptor, TlsSettings

limited: Final = LimitedLog(logging.getLogger(__name__))


class BoundedAccept:
    """Creates the protocol for each connection to `server`."""

    def __init__(
        self, server: web.Server, make: Callable[[], HttpProtocol], connections_max: int
    ) -> None:
        self._server = server
        self._make = make
        self._connections_max = connections_max

    def __call__(self, principal: str = ANONYMOUS) -> asyncio.BaseProtocol:
        connections = self._server.connections
        if len(connections) >= self._connections_max:
            idle = next((one for one in connections if _is_idle(one)), None)
            if idle is None:
                return _Refusal(len(connections))
            idle.force_close()
        protocol = self._make()
        protocol.principal = principal
        return protocol


def bounded_tls(
    listener: socket.socket, tls: TlsSettings, accept: BoundedAccept, handshakes_max: int
) -> TlsAcceptor:
    """Accepts by TLS, with as many handshakes at a time as there may be connections."""
    from echoless.broker.network.tls_acceptor import TlsAcceptor

    handshakes: dict[Handshake, None] = {}

    def begin(handshake: Handshake) -> None:
        if len(handshakes) >= handshakes_max:
            next(iter(handshakes)).give_up("too many are in progress on the admin port")
        handshakes[handshake] = None

    return TlsAcceptor(
        listener,
        tls,
        accept,
        refusal_of=lambda _host, _port: None,
        begun=begin,
        ended=lambda handshake: handshakes.pop(handshake, None),
    )


def _is_idle(handler: web.RequestHandler) -> bool:
    """Whether it is open and not handling a request."""
    return handler.transport is not None and handler._current_request is None  # noqa: SLF001 - aiohttp exposes it nowhere else


class _Refusal(asyncio.Protocol):
    """A protocol that closes its connection as soon as it is made."""

    def __init__(self, count: int) -> None:
        self._count = count

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        host, *_ = transport.get_extra_info("peername") or ("?",)
        message = "refusing a connection to the admin port from %s: %d are busy"
        limited.log(logging.WARNING, host, message, host, self._count)
        transport.close()
