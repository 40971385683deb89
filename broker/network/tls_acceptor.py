"""Accepts the connections of a listener with TLS, and bounds what their handshakes may hold.

The event loop's own servers tell no one of a handshake that fails or hangs, so connections are accepted
here and given to the loop one by one. A handshake counts as an open connection of its address, gives way
to others like an idle one, and ends after `handshake_timeout_s`. Each new one takes the context that is in
use then. Imports no `ssl`: a caller with a context has loaded it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from echoless.broker.essential_task import reported_task
from echoless.broker.limited_log import LimitedLog
from echoless.broker.network.client_host import client_host
from echoless.broker.network.tls_records import stand_before_openssl

if TYPE_CHECKING:
    from ssl import SSLContext

limited: Final = LimitedLog(logging.getLogger(__name__))

ACCEPTED: Final[ContextVar[socket.socket]] = ContextVar("accepted")
"""The socket whose handshake is being made in this context."""
GOODBYE_S: Final = 2.0
"""Time that a closed connection waits for the client's own goodbye."""
_ACCEPTED_PER_TURN: Final = 8
_PAUSE_S: Final = 1.0
"""Pause in accepting after the system has refused a connection, for want of descriptors."""
_HANDSHAKE: Final = b"\x16"
"""The first byte of a TLS handshake. A plaintext frame that began with it would be of more than 352 MiB."""
_PLAIN: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"}
)
"""OpenSSL's reasons that mean that the first bytes were no handshake."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The TLS settings of a listener."""

    context: Callable[[], SSLContext]
    """For a connection that begins now."""
    principal_of: Callable[[asyncio.BaseTransport], str | None]
    """The principal of a client after its handshake; None: it is not admitted."""
    handshake_timeout_s: float
    takes_plaintext: bool = False
    """Whether connections without TLS are admitted too, by their first byte; no one shows a certificate on them."""


class Handshake:
    """A handshake in progress: a connection that is not one yet."""

    must_log_in = True
    """No one knows yet who it is."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._began_at = time.monotonic()
        self.task: asyncio.Task[None] | None = None

    def is_idle_since(self, moment: float) -> bool:
        """Whether it began before `moment` (monotonic seconds)."""
        return self._began_at < moment

    def give_up(self, reason: str) -> None:
        """Ends it, because others need its place."""
        message = "ending a TLS handshake with %s: %s"
        limited.log(logging.WARNING, self.host, message, self.host, reason)
        self.cancel()

    def cancel(self) -> None:
        """Ends it."""
        if self.task is not None:
            self.task.cancel()


class TlsAcceptor:
    """One listening socket, which it owns."""

    def __init__(
        self,
        listener: socket.socket,
        settings: TlsSettings,
        make_protocol: Callable[[str], asyncio.BaseProtocol],
        *,
        refusal_of: Callable[[str, int], str | None],
        begun: Callable[[Handshake], None],
        ended: Callable[[Handshake], None],
    ) -> None:
        """`make_protocol` takes the client's principal; `refusal_of` says why a host and port is refused now.

        `begun` and `ended` count the handshakes; `ended` is called before the protocol's
        `connection_made`, or when there will be none.
        """
        self._listener = listener
        self._settings = settings
        self._make_protocol = make_protocol
        self._refusal_of = refusal_of
        self._begun = begun
        self._ended = ended
        self._handshakes: set[Handshake] = set()
        self._loop = asyncio.get_running_loop()
        self._resuming: asyncio.TimerHandle | None = None
        self._resume()

    def close(self) -> None:
        """Closes the socket, and ends the handshakes in progress."""
        if self._resuming is not None:
            self._resuming.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for handshake in list(self._handshakes):
            handshake.cancel()

    def _resume(self) -> None:
        self._resuming = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_PER_TURN):
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                limited.log(logging.ERROR, "", "cannot accept a connection: %s", error)
                self._loop.remove_reader(self._listener)
                self._resuming = self._loop.call_later(_PAUSE_S, self._resume)
                return
            self._begin(accepted, client_host(address[0]), address[1])

    def _begin(self, accepted: socket.socket, host: str, port: int) -> None:
        reason = self._refusal_of(host, port)
        if reason is not None:
            accepted.close()
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        handshake = Handshake(host)
        self._handshakes.add(handshake)
        self._begun(handshake)
        handshake.task = reported_task(
            self._shake_hands(handshake, accepted, port), "a TLS handshake"
        )
        # Not in the task: one that is cancelled before its first step never reaches its `finally`.
        handshake.task.add_done_callback(lambda _: self._end(handshake, accepted))

    async def _shake_hands(self, handshake: Handshake, accepted: socket.socket, port: int) -> None:
        ACCEPTED.set(accepted)  # in the context of this task
        try:
            if self._settings.takes_plaintext and not await self._begins_handshake(accepted):
                message = "%s has connected without TLS, which native_accepts_plaintext allows"
                limited.log(logging.INFO, handshake.host, message, handshake.host)
                await self._loop.connect_accepted_socket(
                    lambda: _Newcomer(self, handshake), accepted
                )
                return
            await self._start_tls(handshake, accepted)
        except (OSError, EOFError) as error:
            host = handshake.host
            level = logging.DEBUG if isinstance(error, ConnectionResetError) else logging.WARNING
            message = "a TLS handshake with %s:%s failed: %s"
            limited.log(level, host, message, host, port, _reason(error))

    async def _begins_handshake(self, accepted: socket.socket) -> bool:
        """Whether the first byte of a connection is that of a TLS handshake; it stays unread.

        Raises `OSError` if the client goes, or sends none in time.
        """
        readable = asyncio.Event()
        self._loop.add_reader(accepted, readable.set)
        try:
            async with asyncio.timeout(self._settings.handshake_timeout_s):
                await readable.wait()
        finally:
            self._loop.remove_reader(accepted)
        first = accepted.recv(1, socket.MSG_PEEK)
        if not first:
            raise ConnectionResetError
        return first == _HANDSHAKE

    async def _start_tls(self, handshake: Handshake, accepted: socket.socket) -> None:
        settings, newcomer, door = self._settings, _Early(), _Early()
        transport, _ = await self._loop.connect_accepted_socket(lambda: door, accepted)
        starting = self._loop.create_task(
            self._loop.start_tls(
                transport,
                newcomer,
                settings.context(),
                server_side=True,
                ssl_handshake_timeout=settings.handshake_timeout_s,
                ssl_shutdown_timeout=GOODBYE_S,
            )
        )
        try:
            await asyncio.sleep(0)  # by then the transport has OpenSSL's protocol
            records = stand_before_openssl(transport, handshake.host, bytes(door.received))
            tls_transport = await starting
        except BaseException:
            starting.cancel()
            transport.abort()
            raise
        assert tls_transport is not None
        records.open()
        if not newcomer.is_lost:
            self.admit(tls_transport, handshake, newcomer.received)

    def _end(self, handshake: Handshake, accepted: socket.socket | None = None) -> None:
        """Does nothing the second time."""
        if handshake in self._handshakes:
            self._handshakes.remove(handshake)
            self._ended(handshake)
            if accepted is not None:
                with contextlib.suppress(OSError):
                    accepted.close()

    def admit(
        self, transport: asyncio.Transport, handshake: Handshake, received: bytes | bytearray = b""
    ) -> None:
        """Gives a connection whose handshake has succeeded its protocol."""
        self._end(handshake)
        principal = self._settings.principal_of(transport)
        if principal is None:
            message = "closing a connection from %s: no rule of ssl_principal_mapping_rules maps its certificate's name"
            limited.log(logging.WARNING, handshake.host, message, handshake.host)
            transport.abort()
            return
        protocol = self._make_protocol(principal)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if received:
            _give(protocol, memoryview(received))


class _Early(asyncio.Protocol):
    """The protocol of a transport until it has its own: keeps what arrives before."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.is_lost = True


class _Newcomer(asyncio.Protocol):
    """The protocol of a connection without TLS until it has its own."""

    def __init__(self, acceptor: TlsAcceptor, handshake: Handshake) -> None:
        self._acceptor = acceptor
        self._handshake = handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._acceptor.admit(cast("asyncio.Transport", transport), self._handshake)


def _give(protocol: asyncio.BaseProtocol, data: memoryview) -> None:
    """Has the protocol process what arrived before it was the transport's."""
    if isinstance(protocol, asyncio.BufferedProtocol):
        while data:
            buffer = memoryview(protocol.get_buffer(len(data)))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            protocol.buffer_updated(size)
            data = data[size:]
    else:
        cast("asyncio.Protocol", protocol).data_received(bytes(data))


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or str(error) or type(error).__name__
    if reason in _PLAIN:
        return f"the client does not speak TLS ({reason}); set its security.protocol"
    return str(reason)
