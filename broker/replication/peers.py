"""Calls to other brokers: a message goes out, and an answer or a `PeerError` comes back.

`TcpPeers` speaks to their native ports. Each broker gets one connection per type of message, and per
document of `admin_read`, because answers come in the order of the messages: after a long poll, or a long document,
everything else would wait.
Nothing is retried here; the caller knows better when that makes sense.

Called by the fetchers and by topic creation. The simulator has peers of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from echoless.broker.config.values import Address, PlaintextAddress
from echoless.broker.replication.name_lookups import NameLookups
from echoless.broker.replication.peer_connection import PeerConnection, PeerError
from echoless.protocol.native.admin_read import ADMIN_READ

if TYPE_CHECKING:
    from ssl import SSLContext

    from echoless.broker.replication.peer_login import PeerLogin

__all__ = ["ANSWER_SIZE_MAX", "PeerError", "Peers", "TcpPeers"]

ANSWER_SIZE_MAX: Final = 256 * 1024 * 1024
"""Fits what a follower asks for, or one batch larger than that, and some fields around it."""


class Peers(Protocol):
    """Calls to the other brokers."""

    async def call(
        self, broker_id: int, address: Address, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        """Sends one native message and returns its answer, both as maps.

        Raises `PeerError` when the broker cannot be reached, or its answer is late or unreadable. An
        `error` in the answer is the caller's to read.
        """

    def disconnect(self, broker_id: int) -> None:
        """Ends the connections to the broker; calls in flight fail."""

    async def close(self) -> None:
        """Ends all connections."""


class TcpPeers:
    """Connections, opened when first needed, and reopened after they have ended."""

    def __init__(
        self,
        client_context: Callable[[], SSLContext] | None = None,
        login: PeerLogin | None = None,
        *,
        answer_size_max: int = ANSWER_SIZE_MAX,
    ) -> None:
        """`client_context`: for a connection that begins now, if brokers speak TLS among themselves.

        `login`: if they log in to each other.
        """
        self._client_context = client_context
        self._login = login
        self._answer_size_max = answer_size_max
        self._is_closed = False
        self._lookups = NameLookups()
        self._connections: dict[tuple[int, str], PeerConnection] = {}

    async def call(
        self, broker_id: int, address: Address, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        """Many calls may run at once. A late answer ends the connection, and all its calls."""
        if self._is_closed:
            raise PeerError(f"broker {broker_id}: this broker is stopping")
        key = (broker_id, _kind(message))
        connection = self._connections.get(key)
        if connection is None or connection.is_closed or connection.address != address:
            if connection is not None:
                connection.close("the broker has moved")
            connection = PeerConnection(
                broker_id,
                address,
                self._answer_size_max,
                self._lookups,
                context=self._context_for(address),
                login=self._login,
            )
            self._connections[key] = connection
        return await connection.call(message, timeout_s)

    def _context_for(self, address: Address) -> SSLContext | None:
        if self._client_context is None or isinstance(address, PlaintextAddress):
            return None
        return self._client_context()

    def disconnect(self, broker_id: int) -> None:
        for key in [key for key in self._connections if key[0] == broker_id]:
            self._connections.pop(key).close("disconnected")

    async def close(self) -> None:
        self._is_closed = True
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            connection.close("this broker is stopping")
        for connection in connections:
            await connection.wait_closed()


def _kind(message: Mapping[str, Any]) -> str:
    """Messages of one kind wait for each other's answers."""
    kind: str = message["type"]
    if kind == "replica_wake":
        return "replica_fetch"  # whose wait it ends: in order, it cannot come before that begins
    return f"{kind} {message['name']}" if kind == ADMIN_READ else kind
