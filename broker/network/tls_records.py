"""Passes what arrives by TLS on to OpenSSL: a few records at a time, and handshakes by turns of their addresses.

OpenSSL works through all that it is given in one call. A record of 27 bytes can cost it 45 us (a KeyUpdate: new keys for
both directions), and the first one of a handshake a signature, so a single read of a socket could take it
half a second. Here a step is of `RECORDS_PER_STEP` records at most, and of one during the handshake; what is left
waits for a later step, and nothing more is read meanwhile. Handshakes, many small records, and what a step has left
wait in one queue, where addresses take turns, and which has `TURN_S` in each turn of the loop.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import Context, copy_context
from typing import Any, Final, Protocol, cast

from echoless.broker.network.fair_queue import FairQueue
from echoless.broker.network.loop_turn import LOOP_TURN, TURN_S

RECORDS_PER_STEP: Final = 48
"""More than a read brings, where they have the usual 16 KiB."""
_HEADER_BYTES: Final = 5
_FEW: Final = 4
"""Records that are passed on at once, whatever they are."""
_LARGE_BYTES: Final = 1024
"""Records of so many bytes on average are passed on at once as well."""
_READ_BYTES_MAX: Final = 256 * 1024
_SCRATCH: Final = memoryview(bytearray(_READ_BYTES_MAX))
"""The bytes of one read, which are passed on or copied before the next."""


class OpenSslProtocol(Protocol):
    """The loop's own protocol between a TCP transport and a TLS transport."""

    def get_buffer(self, sizehint: int, /) -> memoryview: ...

    def buffer_updated(self, nbytes: int, /) -> None: ...

    def eof_received(self) -> bool | None: ...

    def connection_lost(self, exc: Exception | None, /) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class TlsTurns:
    """The connections of a loop that wait for a step."""

    def __init__(self) -> None:
        self._waiting: FairQueue[TlsRecords] = FairQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that serves the queue; None if no one waits."""

    def wait(self, records: TlsRecords) -> None:
        """Lets the connection have a step in a later turn of the loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._waiting = FairQueue()  # an earlier loop has ended, with its connections
            self._loop = loop
            loop.call_soon(self._serve)
        self._waiting.push(records)

    def discard(self, records: TlsRecords) -> None:
        """Forgets a connection that has ended."""
        self._waiting.discard(records)

    def _serve(self) -> None:
        began_at = now = time.monotonic()
        try:
            while (records := self._waiting.head()) is not None:
                self._waiting.serve(records)
                records.step()
                now = time.monotonic()
                if now - began_at >= TURN_S:
                    break
        finally:  # a step that raises is a bug, which costs no other connection its turn
            LOOP_TURN.count(now - began_at)
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._serve)
            else:
                self._loop = None


TURNS: Final = TlsTurns()


class TlsRecords(asyncio.BufferedProtocol):
    """The protocol of a TCP transport: stands before OpenSSL's, from the handshake to the end."""

    def __init__(self, transport: asyncio.Transport, inner: OpenSslProtocol, host: str) -> None:
        self.address = host
        self.is_open = False
        """Whether the handshake is over."""
        self._transport = transport
        self._inner = inner
        self._context: Context = copy_context()
        self._left_in_record = 0
        """Bytes of the record that has begun; they are still to come."""
        self._held = bytearray()
        """Bytes for later steps, or the beginning of a header."""
        self._waits = False
        self._is_inner_paused = False
        """Whether OpenSSL's protocol has paused reading, since its reader has."""
        self._is_at_end = False

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return _SCRATCH

    def buffer_updated(self, nbytes: int) -> None:
        self._is_inner_paused = False
        data = _SCRATCH[:nbytes]
        if self._held or not self.is_open or (LOOP_TURN.used_s and LOOP_TURN.is_crowded):
            self.hold(data)
            return
        left_before = self._left_in_record
        end, records = self._end_of_step(data)
        if records <= _FEW:
            self._feed(data[:end])
        elif nbytes < records * _LARGE_BYTES:
            self._left_in_record = left_before
            self.hold(data)
            return
        else:
            self._feed_and_count(data[:end])
        if end < nbytes:
            self._is_inner_paused = not self._transport.is_reading()
            self._held += data[end:]
            self._wait_if_there_is_more()

    def hold(self, data: bytes | memoryview) -> None:
        """Passes the data on in later steps."""
        self._held += data
        self._wait()

    def open(self) -> None:
        """The handshake is over, and its connection has been admitted."""
        self.is_open = True

    def step(self) -> None:
        """Passes some records on."""
        self._waits = False
        self._context.run(self._step)

    def _step(self) -> None:
        transport = self._transport
        if transport.is_closing():
            return
        if transport.is_reading():
            self._is_inner_paused = False
        elif not self._is_inner_paused:
            transport.resume_reading()
        data = self._held
        end, _ = self._end_of_step(memoryview(data))
        self._held = data[end:]
        self._feed(memoryview(data)[:end])
        self._is_inner_paused = not transport.is_reading()
        self._wait_if_there_is_more()

    def _wait_if_there_is_more(self) -> None:
        if len(self._held) >= _HEADER_BYTES or (self._held and self._left_in_record):
            self._wait()
        elif self._is_at_end and not self._inner.eof_received():
            self._transport.close()

    def _wait(self) -> None:
        self._transport.pause_reading()
        if self._waits:
            return
        self._waits = True
        if self.is_open:
            TURNS.wait(self)
        else:  # a handshake that has just ended is admitted first, which takes two turns of the loop
            soon = asyncio.get_running_loop().call_soon
            soon(soon, soon, TURNS.wait, self)

    def _end_of_step(self, data: memoryview) -> tuple[int, int]:
        """The end of the records that one step takes of these bytes, and how many they are.

        The beginning of a header waits for the rest of it.
        """
        position, size, records = self._left_in_record, len(data), 0
        most = RECORDS_PER_STEP if self.is_open else 1
        while records < most and position + _HEADER_BYTES <= size:
            position += _HEADER_BYTES + (data[position + 3] << 8) + data[position + 4]
            records += 1
        end = min(position, size)
        self._left_in_record = position - end
        return end, records

    def _feed(self, data: memoryview) -> None:
        size = len(data)
        if size:
            inner = self._inner
            inner.get_buffer(size)[:size] = data
            inner.buffer_updated(size)

    def _feed_and_count(self, data: memoryview) -> None:
        """Counts what OpenSSL takes; the requests are counted by their connection."""
        began_at, used_s = time.monotonic(), LOOP_TURN.used_s
        self._feed(data)
        LOOP_TURN.count(time.monotonic() - began_at - (LOOP_TURN.used_s - used_s))

    def eof_received(self) -> bool | None:
        if self._waits:
            self._is_at_end = True
            return True
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._held = bytearray()
        if self._waits:
            TURNS.discard(self)
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


def stand_before_openssl(transport: asyncio.Transport, host: str, early: bytes) -> TlsRecords:
    """Takes the place of the protocol that `start_tls` has given the transport; `early` has arrived before."""
    records = TlsRecords(transport, cast("OpenSslProtocol", transport.get_protocol()), host)
    transport.set_protocol(cast("Any", records))
    if early:
        records.hold(early)
    return records
