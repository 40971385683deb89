"""Requests, as handlers get them, and the answers that handlers may give."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, Self

from echoless.broker.config.listener_names import PLAINTEXT
from echoless.broker.config.values import Address
from echoless.broker.network.client_host import client_host
from echoless.broker.network.order import RequestOrder
from echoless.broker.network.promise import Promise
from echoless.protocol.headers import RequestHeader
from echoless.protocol.known.memory import SeenBytes

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that has not authenticated, as Kafka names it."""


class ConnectionLogin(Protocol):
    """The log-in of one connection (`broker/authentication/session.py`)."""

    @property
    def is_open(self) -> bool:
        """Whether the client has logged in, and need not do so again yet."""

    def connection_lost(self) -> None:
        """The connection has ended; nothing will be logged in."""

    def expire(self) -> None:
        """Ends the session now: before anything else, the client has to log in again."""


class Kept(Protocol):
    """State that is kept for one connection."""

    def close(self) -> None:
        """Drops it: the connection has ended."""


class Software(NamedTuple):
    """The software of a client, as it names itself in ApiVersions."""

    client_id: str | None
    name: str
    """`unnamed` before version 3 of the request."""
    version: str


@dataclass(slots=True, repr=False, eq=False)
class Peer:
    """The other end of a connection."""

    connection_id: int
    address: str
    """`host:port` of the client."""
    client_id: str | None = None
    """The client id from a hello on the native port; on the Kafka port every request carries it."""
    principal: str = ANONYMOUS
    """The principal of the client."""
    pause: Callable[[float], None] | None = None
    """Reads nothing more from the connection for so many seconds; None once it has ended."""
    rights: Any = None
    """The rights of the principal (`broker/authorization/access.py`), once they were needed."""
    login: ConnectionLogin | None = None
    """None on a listener where no one has to log in."""
    listener: str = PLAINTEXT
    """The name of the listener it connected to: answers give it that listener's addresses."""
    known_head: Any = None
    """The head of its last request, for a dispatcher that expects the next one to begin likewise."""
    seen: SeenBytes = field(default_factory=SeenBytes)
    """The bytes it has sent, for readers that know them again."""
    software: Software | None = None
    """None until the client has sent ApiVersions."""
    order: RequestOrder = field(default_factory=RequestOrder)
    """The requests that later ones of the same kind must not overtake."""

    fetch_rows: Any = None
    """The rows of its last fetch without a session, if they were many (`broker/records/repeated_fetch.py`)."""
    has_ended: bool = False
    """Whether the connection was lost."""
    transport_info: Callable[[str], Any] | None = None
    """Reads a property of the transport, by asyncio's name for it; None once the connection has ended."""

    def keep(self, rows: Kept) -> bool:
        """Keeps the rows until the connection ends; returns False if it has ended."""
        if not self.has_ended:
            self.fetch_rows = rows
        return not self.has_ended

    def connection_lost(self) -> None:
        """Drops what is kept for the connection."""
        self.pause = None
        self.transport_info = None
        self.has_ended = True
        rows, self.fetch_rows = self.fetch_rows, None
        if rows is not None:
            rows.close()
        if self.login is not None:
            self.login.connection_lost()

    @property
    def host(self) -> str:
        """The address without the port."""
        return self.address.rpartition(":")[0]

    @property
    def arrived_at(self) -> Address | None:
        """The address of this broker that the client has connected to.

        None once the connection has ended, and for one that only the client's own link knows (`fe80::1%eth0`).
        """
        found = None if self.transport_info is None else self.transport_info("sockname")
        if not isinstance(found, tuple) or "%" in found[0]:
            return None
        return Address(client_host(found[0]), found[1])


@dataclass(slots=True, repr=False, eq=False)
class Request:
    """One decoded request."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    """The kio entity of the request's API and version, or what `Api.read_request` makes."""
    peer: Peer
    judged: Any = None
    """The topics of a long request that the client may not use (`broker/handlers/permits.py`); None for a short one."""

    @classmethod
    def of(cls, header: RequestHeader, body: Any, peer: Peer) -> Self:
        """The request that was read behind a header."""
        api_key, version, correlation_id, client_id, _ = header
        return cls(api_key, version, correlation_id, client_id, body, peer)


class NoResponse:
    """The type of `NO_RESPONSE`."""


NO_RESPONSE: Final = NoResponse()
"""The answer of a handler when the client expects none (acks=0)."""

Answer = Mapping[str, Any] | bytes | Sequence[bytes] | NoResponse
"""Plain values for `Api.encode_response`, or the body already packed."""

Outcome = Answer | Awaitable[Answer]
"""Handlers that need not wait answer at once, since an asyncio task costs more than most requests.

What waits for one event of a partition returns a `Promise`, which needs no task either.
"""


class CloseConnectionError(Exception):
    """The only answer is to close the connection; the message says why."""


class NeedsNoFrame(Awaitable[Any]):
    """An answer that is still to come and no longer needs the bytes of its request.

    Their memory is released to other requests at once: a produce may wait long for its replicas.
    """

    __slots__ = ("_answer",)

    def __init__(self, answer: Coroutine[Any, Any, Any]) -> None:
        self._answer = answer

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._answer.__await__()


class NeedsFrameUntil(Awaitable[Any]):
    """An answer that needs the bytes of its request until `processed`, which waits for this broker alone.

    Until then the request is not taken for one that stalls, however many others the broker processes first.
    """

    __slots__ = ("_answer", "processed")

    def __init__(self, answer: Coroutine[Any, Any, Any], processed: asyncio.Future[Any]) -> None:
        self._answer = answer
        self.processed = processed

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._answer.__await__()


class OfNoApi(Awaitable[Any]):
    """An answer to bytes that are no request of an API: their place for its key has anything, or is not there.

    No latency is counted.
    """

    __slots__ = ("_answer",)

    def __init__(self, answer: Awaitable[Any]) -> None:
        self._answer = answer

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._answer.__await__()


def needing_as_much(outcome: Awaitable[Any], answer: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
    """Marks `answer`, which is made of `outcome`, as needing the frame for as long as that does."""
    if isinstance(outcome, NeedsNoFrame | Promise):
        return NeedsNoFrame(answer)
    if isinstance(outcome, NeedsFrameUntil):
        return NeedsFrameUntil(answer, outcome.processed)
    return answer
