"""One connection to another broker's native port: many messages in flight, answers in order.

It opens with the first call and begins with a hello, by which the other side proves that it is the
intended broker: its address may belong to another one by now. It ends with the first answer that is
late, out of order or unreadable, since nothing that follows could be trusted; every call in flight
then fails, and the connection is not used again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from echoless.broker.config.values import Address
from echoless.broker.essential_task import reported_task
from echoless.broker.replication.name_lookups import NameLookups
from echoless.protocol.errors import DecodeError
from echoless.protocol.framing import FrameReceiver, frame_length
from echoless.protocol.native.answers import Answer
from echoless.protocol.native.codec import decode_message, encode_message
from echoless.protocol.native.messages import UNKNOWN_BROKER, VERSION_MAX
from echoless.protocol.native.replication import read_error
from echoless.protocol.sasl.mechanism import SaslError

if TYPE_CHECKING:
    from ssl import SSLContext

    from echoless.broker.replication.peer_login import PeerLogin

UNREADABLE: Final = "error"
"""The type of the answer to a message that the peer, perhaps an older version, does not know."""
PEER_CLIENT_ID: Final = "echoless-broker"
_RENEWED_AT: Final = 0.8
"""The part of a session's lifetime after which it is renewed."""


class PeerError(Exception):
    """No answer came; the message says from which broker, and why."""


class _InFlight(NamedTuple):
    """A message not yet answered."""

    message_type: str
    correlation_id: int
    answered: asyncio.Future[dict[str, Any]]


class PeerConnection(asyncio.BufferedProtocol):
    """A connection that is opening, open or closed for good."""

    def __init__(
        self,
        broker_id: int,
        address: Address,
        answer_size_max: int,
        lookups: NameLookups,
        *,
        context: SSLContext | None = None,
        login: PeerLogin | None = None,
    ) -> None:
        """`context` is None for a connection without TLS, `login` for one without SASL."""
        self.address = address
        self._context = context
        self._login = login
        self._lookups = lookups
        self.is_closed = False
        self._name = f"broker {broker_id} at {address}"
        self._broker_id = broker_id
        self._receiver = FrameReceiver(answer_size_max)
        self._correlation_ids = itertools.count(1)
        self._in_flight: deque[_InFlight] = deque()
        self._limits: dict[asyncio.Timeout, float] = {}
        """The time limits of the calls in flight, with the silence that each allows."""
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._end_reason = ""

    async def call(self, message: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Sends a message and returns its answer. Raises `PeerError`, also for all calls in flight.

        The peer may be silent for `timeout_s`; a large answer over a slow link may take longer.
        """
        limit = asyncio.timeout(timeout_s)
        self._limits[limit] = timeout_s
        try:
            async with limit:
                await self._opened()
                return await self._send(message)
        except TimeoutError:
            reason = f"no answer to {message['type']} within {timeout_s:g} s"
            self.close(reason)
            raise self._ended() from None
        finally:
            del self._limits[limit]

    def close(self, reason: str) -> None:
        """Ends the connection; calls in flight fail with `reason`, unless it has ended already."""
        if self.is_closed:
            return
        self.is_closed = True
        self._end_reason = reason
        if self._opening is not None:
            self._opening.cancel()
        if self._transport is not None:
            self._transport.abort()
        for call in self._in_flight:
            if not call.answered.done():
                call.answered.set_exception(self._ended())
        self._in_flight.clear()

    async def wait_closed(self) -> None:
        """Returns when a closed connection has left nothing running."""
        for task in (self._opening, self._renewal):
            if task is not None:
                await asyncio.wait((task,))

    def _ended(self) -> PeerError:
        return PeerError(f"{self._name}: {self._end_reason}")

    # --- opening ---

    async def _opened(self) -> None:
        """Returns when the peer has answered the hello; the calls share one attempt."""
        if self._opening is None:
            self._opening = reported_task(self._open(), f"connecting to {self._name}")
        if not self._opening.done():  # else `wait` would take two turns of the loop
            # `wait` leaves the attempt alone when this call is cancelled.
            await asyncio.wait((self._opening,))
        if self.is_closed:
            raise self._ended()

    async def _open(self) -> None:
        try:
            await self._connect()
            if self._login is not None:
                self._renew_in(await self._login.log_in(self._send))
            # Afterwards, because a broker that asks for a log-in does not say who it is before.
            hello = {"type": "hello", "version": VERSION_MAX, "client_id": PEER_CLIENT_ID}
            self._check_hello(await self._send(hello))
        except PeerError:
            assert self.is_closed
        except OSError as error:
            self.close(self._reason(error))
        except SaslError as error:
            self.close(f"its log-in: {error}")
        except (ValueError, OverflowError) as error:
            self.close(f"no such address: {error}")
        except DecodeError as error:
            self.close(f"its hello makes no sense: {error}")

    def _reason(self, error: OSError) -> str:
        """The error in words; asyncio raises some that have none, as when a peer ends a TLS handshake."""
        said = error.strerror or str(error)
        if self._context is None or said:
            return said or f"the connection ended ({type(error).__name__})"
        return f"the connection ended in its TLS handshake ({type(error).__name__}): does it speak TLS there?"

    def _renew_in(self, lifetime_s: float) -> None:
        """Logs in again before the session ends, if it does."""
        if lifetime_s:
            loop = asyncio.get_running_loop()
            loop.call_later(lifetime_s * _RENEWED_AT, self._begin_renewal)

    def _begin_renewal(self) -> None:
        if not self.is_closed:
            self._renewal = reported_task(self._renew(), f"renewing the session with {self._name}")

    async def _renew(self) -> None:
        assert self._login is not None
        try:
            self._renew_in(await self._login.log_in(self._send))
        except PeerError:
            assert self.is_closed
        except (SaslError, DecodeError) as error:
            self.close(f"its log-in: {error}")

    async def _connect(self) -> None:
        """Connects to the first of the host's addresses that accepts. Raises `OSError`."""
        *others, last = await self._lookups.addresses(self.address.host)
        for host in others:
            with contextlib.suppress(OSError):
                await self._connect_to(host)
                return
        await self._connect_to(last)

    async def _connect_to(self, host: str) -> None:
        name = None if self._context is None else self.address.host
        await asyncio.get_running_loop().create_connection(
            lambda: self, host, self.address.port, ssl=self._context, server_hostname=name
        )

    def _check_hello(self, answer: dict[str, Any]) -> None:
        """Raises `DecodeError` if another broker answered."""
        error = read_error(answer)
        if error is not None:
            raise DecodeError(error.message)
        broker_id = Answer("the hello", answer).integer("broker_id", least=UNKNOWN_BROKER)
        if broker_id not in {self._broker_id, UNKNOWN_BROKER}:  # unknown: every call is refused
            raise DecodeError(f"it comes from broker {broker_id}")

    # --- messages and answers ---

    async def _send(self, message: Mapping[str, Any]) -> dict[str, Any]:
        if self.is_closed or self._transport is None:
            raise self._ended()
        answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        call = _InFlight(message["type"], next(self._correlation_ids), answered)
        body = encode_message({**message, "correlation_id": call.correlation_id})
        self._in_flight.append(call)
        self._transport.writelines((frame_length(len(body)), body))
        return await answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not subclass asyncio's; they only behave alike.
        self._transport = cast("asyncio.Transport", transport)
        if self.is_closed:
            self._transport.abort()
            return
        connected = transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._receiver.writable()

    def buffer_updated(self, nbytes: int) -> None:
        self._receiver.received(nbytes)
        try:
            while not self.is_closed and (frame := self._receiver.next_frame()) is not None:
                self._take(decode_message(frame))
        except DecodeError as error:
            self.close(f"its answer makes no sense: {error}")
        if self._in_flight or self._opening is None or not self._opening.done():
            self._extend_limits()  # else these bytes were the answer to the only call

    def _extend_limits(self) -> None:
        """Begins the silence anew that each call allows: the peer has just sent something."""
        now_s = asyncio.get_running_loop().time()
        for limit, timeout_s in self._limits.items():
            if not limit.expired():
                limit.reschedule(now_s + timeout_s)

    def _take(self, answer: dict[str, Any]) -> None:
        if not self._in_flight:
            raise DecodeError("nothing was asked")
        call = self._in_flight[0]
        answer_type, correlation_id = answer.get("type"), answer.get("correlation_id")
        if answer_type not in {call.message_type, UNREADABLE} or (
            correlation_id != call.correlation_id
        ):
            raise DecodeError(f"{answer_type!r} {correlation_id!r} is not the answer to {call[:2]}")
        self._in_flight.popleft()
        if not call.answered.done():  # the caller may be gone
            call.answered.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        said = "" if exc is None else f": {str(exc) or type(exc).__name__}"
        self.close(f"the connection ended{said}")
