"""One connection of a client, from its first byte to its last: log-in, idleness, and the three ways to end it.

`close` ends it now, `close_after_answers` when the answers in flight have left, `drain` when the broker stops. What
it reads is in `reading.py`, what it answers in `answers.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Final, Protocol, cast

from echoless.broker.config.listener_names import PLAINTEXT
from echoless.broker.metrics import Latencies, Metrics
from echoless.broker.network.answers import AnswerSlot, limited
from echoless.broker.network.client_host import client_host
from echoless.broker.network.hold import Hold
from echoless.broker.network.memory_budget import MemoryBudget
from echoless.broker.network.pieces import Pieces
from echoless.broker.network.reading import Dispatch, ReadConnection
from echoless.broker.network.request import ANONYMOUS, ConnectionLogin, Peer
from echoless.broker.network.unsent_answers import UnsentAnswers

logger = logging.getLogger(__name__)

WRITE_BUFFER_BYTES_MAX: Final = 1024 * 1024
LINGER_S: Final = 10.0
"""Time for the client of a closed connection to read answers already written."""
GOODBYE_S: Final = 0.5
"""Time for a client that sent a request recently to close its side."""


class Entrance(Protocol):
    """Mutes new connections until their turn comes (`broker/quotas/entrance.py`)."""

    def enter(self, connection: Connection) -> bool: ...

    def leave(self, connection: Connection) -> None: ...


class Connection(ReadConnection):
    """A client's connection to either port."""

    must_log_in = False
    """Whether its client has to log in, and has not yet."""
    on_admitted: Callable[[Connection], None] | None = None
    """Called when the client has logged in for the first time."""

    def __init__(
        self,
        dispatch: Dispatch,
        *,
        connection_id: int,
        listener_name: str = PLAINTEXT,
        principal: str = ANONYMOUS,
        frame_size_max: int,
        budget: MemoryBudget,
        unsent: UnsentAnswers,
        connections: set[Connection],
        metrics: Metrics,
        latencies: Latencies | None = None,
    ) -> None:
        super().__init__(
            dispatch,
            Peer(connection_id, "?", principal=principal, listener=listener_name),
            frame_size_max=frame_size_max,
            budget=budget,
            unsent=unsent,
            metrics=metrics,
            latencies=latencies,
        )
        self._peer.pause = self.pause
        self._connections = connections
        self.entrance: Entrance | None = None
        """The place where the connection may have to wait before it is read."""
        self._linger: asyncio.TimerHandle | None = None
        self._ending: asyncio.Future[None] | None = None
        """Waits for the last answers of a client that has ended its side."""

    @property
    def peer(self) -> Peer:
        """The other end."""
        return self._peer

    @property
    def principal(self) -> str:
        """The principal of the client."""
        return self._peer.principal

    @property
    def idle_ms(self) -> int:
        """Milliseconds since the client last sent something, or was sent an answer."""
        return int((time.monotonic() - self._last_active) * 1000)

    def is_idle_since(self, moment: float) -> bool:
        """Whether nothing has moved since `moment` (monotonic seconds) and no request is in progress."""
        return self._last_active < moment and not self._tasks and not self._promised

    # --- the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports only resemble asyncio's classes; they are not subclasses.
        self._transport = cast("asyncio.Transport", transport)
        self._holds.discard(Hold.NO_TRANSPORT)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        self._peer.transport_info = transport.get_extra_info
        address = transport.get_extra_info("peername")
        if isinstance(address, tuple):
            self._peer.address = f"{client_host(address[0])}:{address[1]}"
            self.host = self._peer.host
        self._connections.add(self)
        self._metrics.connections_open += 1
        if self.entrance is not None:
            self.entrance.enter(self)
            if Hold.MUTED in self._holds:
                # Both loops begin to read after this, also if reading is paused in it.
                asyncio.get_running_loop().call_soon(self._update_reading)
        logger.debug("connection %d from %s", self._peer.connection_id, self._peer.address)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._holds.add(Hold.NO_TRANSPORT)
        self._lost.set()
        self._peer.connection_lost()
        if self._pause is not None:
            self._pause.cancel()
        if self.entrance is not None:
            self.entrance.leave(self)
        self._connections.discard(self)
        self._metrics.connections_open -= 1
        # Not now: a task that has not taken its first step would never reach its `finally`.
        asyncio.get_running_loop().call_soon(self._end_waits)
        if self._linger is not None:
            self._linger.cancel()
        self._drop_answers()
        self._drop_frames()
        logger.debug("connection %d ended%s", self._peer.connection_id, f": {exc}" if exc else "")

    def _end_waits(self) -> None:
        self._abandon_answers()
        if self._ending is not None:
            self._ending.cancel()

    def eof_received(self) -> bool:
        """Ends the connection, after what is in flight: the client may have ended only its side.

        Not for longer than `GOODBYE_S`, because most clients are gone and read no answer. By TLS
        at once: Python's has no half that stays open, and logs a warning when asked for it.
        """
        if not self._tasks and not self._promised:
            return False
        if self._transport is None or self._transport.get_extra_info("sslcontext") is not None:
            return False
        if Hold.DRAINING not in self._holds:
            self._ending = asyncio.ensure_future(self._end())
        return True

    async def _end(self) -> None:
        if work := self._in_progress():  # else it ended before this task began
            await asyncio.wait(work, timeout=GOODBYE_S)
        self.close()

    # --- log-in ---

    def require_login(self, login: ConnectionLogin, frame_size_max: int) -> None:
        """Sets who decides what this client may send before it has logged in."""
        self._peer.login = login
        self.must_log_in = True
        self._receiver.limit(frame_size_max)

    def admit(self, principal: str, frame_size_max: int) -> None:
        """Names the client, which has logged in."""
        self._peer.principal = principal
        self._receiver.limit(frame_size_max)
        if self.must_log_in:
            self.must_log_in = False
            if self.on_admitted is not None:
                self.on_admitted(self)

    # --- the end ---

    def close(self, reason: str = "") -> None:
        """Closes the connection now; answers not yet written are lost to the client."""
        if self._transport is None:
            return
        if reason:
            limited.log(
                logging.WARNING,
                self.host,
                "closing connection %d from %s: %s",
                self._peer.connection_id,
                self._peer.address,
                reason,
            )
        self._write_joined()
        transport, self._transport = self._transport, None
        self._holds.add(Hold.NO_TRANSPORT)
        self._release()
        transport.close()
        if transport.get_write_buffer_size():
            # A client that never reads its answers would hold them, and the socket, forever.
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def close_after_answers(self, reason: str) -> None:
        """Closes the connection when the answers in flight have left, after `LINGER_S` at the latest.

        To be called when nothing more is read (`mute`).
        """
        if self._transport is None:
            return
        end = AnswerSlot()
        end.buffers, end.ready = Pieces(b"", 1, 0.0, closes=reason), True
        self._slots.append(end)
        self._linger = asyncio.get_running_loop().call_later(LINGER_S, self.close, reason)

    async def drain(self) -> None:
        """Accepts no further requests, answers those in flight, then closes.

        Whatever the client still sends is read and discarded until it has seen the end: closing with
        unread bytes makes the kernel reset the connection and drop answers that have not left yet.
        """
        was_active = not self.is_idle_since(time.monotonic() - GOODBYE_S)
        self._holds.add(Hold.DRAINING)
        self._release()
        self._flush_slots()
        self._update_reading()
        if work := self._in_progress():
            await asyncio.wait(work)
        transport = self._transport
        if was_active and transport is not None and not transport.is_closing():
            await self._say_goodbye(transport)
        self.close()

    async def _say_goodbye(self, transport: asyncio.Transport) -> None:
        """Ends our side, and waits a little for the client to end its own."""
        if transport.can_write_eof():
            transport.write_eof()
        else:  # TLS: the end says goodbye and waits for the client's
            self.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await self._lost.wait()
