"""One connection: order, back-pressure, and what ends it. Over a real loopback socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections import deque

import pytest

from broker.connection import INFLIGHT_REQUESTS_MAX, Connection
from broker.memory_budget import MemoryBudget
from broker.metrics import Metrics
from broker.request import CloseConnectionError
from protocol.errors import DecodeError

FRAME_SIZE_MAX = 1_000_000
LARGE_ANSWER_BYTES = 4_000_000


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Harness:
    """A server whose dispatcher the test scripts; requests are answered with their own bytes."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.held: deque[asyncio.Future[None]] = deque()
        self.connections: set[Connection] = set()
        self.metrics = Metrics()
        self.budget = MemoryBudget(2 * FRAME_SIZE_MAX)

    def dispatch(self, frame, _peer):
        payload = bytes(frame)
        self.requests.append(payload)
        if payload.startswith((b"hold", b"large")):
            released = asyncio.get_running_loop().create_future()
            self.held.append(released)
            return self.answer_later(payload, released)
        if payload.startswith(b"silent"):
            return None
        if payload.startswith(b"close"):
            raise CloseConnectionError("as asked")
        if payload.startswith(b"garbage"):
            raise DecodeError("as asked")
        return (framed(payload),)

    async def answer_later(self, payload, released):
        await released
        return (framed(bytes(LARGE_ANSWER_BYTES) if payload == b"large" else payload[:10]),)

    def connection(self):
        return Connection(
            self.dispatch,
            connection_id=1,
            frame_size_max=FRAME_SIZE_MAX,
            budget=self.budget,
            connections=self.connections,
            metrics=self.metrics,
        )


@contextlib.asynccontextmanager
async def serving():
    """A harness, and a function that connects to it."""
    harness = Harness()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(harness.connection, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    writers = []

    async def connect():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        return reader, writer

    try:
        yield harness, connect
    finally:
        for writer in writers:
            writer.close()
        server.close()
        for connection in list(harness.connections):
            connection.close()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(10):
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)


async def until(condition) -> None:
    """Lets the loop run until the condition holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the condition is the harness's, not an event
            await asyncio.sleep(0)


async def test_answers_leave_in_the_order_of_their_requests():
    """A later request is worked on at once, but its answer waits for the earlier one."""
    async with serving() as (harness, connect):
        reader, writer = await connect()
        writer.write(framed(b"hold 1") + framed(b"hold 2") + framed(b"now 3"))
        await until(lambda: len(harness.requests) == 3)
        harness.held[1].set_result(None)
        harness.held[0].set_result(None)
        answers = [await read_frame(reader) for _ in range(3)]
        assert answers == [b"hold 1", b"hold 2", b"now 3"]


async def test_a_request_without_answer_keeps_the_order():
    """acks=0 leaves no gap in the answers of the others."""
    async with serving() as (_, connect):
        reader, writer = await connect()
        writer.write(framed(b"silent") + framed(b"loud"))
        assert await read_frame(reader) == b"loud"


@pytest.mark.parametrize("request_bytes", [b"close me", b"garbage"])
async def test_a_request_that_cannot_be_served_ends_the_connection(request_bytes):
    """The client sees the end of the stream; nobody else is disturbed."""
    async with serving() as (_, connect):
        reader, writer = await connect()
        other_reader, other_writer = await connect()
        writer.write(framed(request_bytes))
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        other_writer.write(framed(b"alive"))
        assert await read_frame(other_reader) == b"alive"


async def test_a_hostile_length_ends_the_connection_without_taking_memory():
    """A frame that claims two gigabytes is refused at its length."""
    async with serving() as (harness, connect):
        reader, writer = await connect()
        writer.write(struct.pack(">i", 2**31 - 1))
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        assert harness.budget.used == 0


async def test_too_many_waiting_requests_stop_the_reading():
    """At most `INFLIGHT_REQUESTS_MAX` answers are owed to one connection; then TCP pushes back."""
    async with serving() as (harness, connect):
        reader, writer = await connect()
        count = INFLIGHT_REQUESTS_MAX + 10
        writer.write(b"".join(framed(b"hold %d" % number) for number in range(count)))
        await until(lambda: len(harness.requests) == INFLIGHT_REQUESTS_MAX)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(harness.requests) == INFLIGHT_REQUESTS_MAX
        answers = []
        for number in range(count):
            await until(lambda: harness.held)
            harness.held.popleft().set_result(None)
            answers.append(await read_frame(reader))
            assert answers[number] == b"hold %d" % number


async def test_a_large_frame_waits_for_request_memory():
    """Two large requests fill the budget; the third is read when one of them is answered."""
    async with serving() as (harness, connect):
        large = b"hold" + bytes(FRAME_SIZE_MAX - 4)
        streams = [await connect() for _ in range(3)]
        for index, (_, writer) in enumerate(streams):
            writer.write(framed(large))
            if index < 2:
                await until(lambda index=index: len(harness.requests) == index + 1)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(harness.requests) == 2
        assert harness.budget.used == 2 * FRAME_SIZE_MAX
        harness.held.popleft().set_result(None)
        await until(lambda: len(harness.requests) == 3)
        while harness.held:
            harness.held.popleft().set_result(None)
        for reader, _ in streams:
            await read_frame(reader)
        await until(lambda: harness.budget.used == 0)


async def test_memory_comes_back_when_a_client_vanishes_in_mid_frame():
    """A connection that is lost gives back what it had reserved."""
    async with serving() as (harness, connect):
        _, writer = await connect()
        writer.write(struct.pack(">i", FRAME_SIZE_MAX) + b"only a little")
        await until(lambda: harness.budget.used == FRAME_SIZE_MAX)
        writer.transport.abort()
        await until(lambda: harness.budget.used == 0)
        assert harness.metrics.connections_open == 0


async def test_a_client_that_does_not_read_is_not_read_either():
    """Answers that nobody takes stop the requests, so memory stays flat."""
    async with serving() as (harness, connect):
        _, writer = await connect()
        sock = writer.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        writer.transport.pause_reading()
        payload = bytes(60_000)
        for _ in range(400):
            writer.write(framed(payload))
        seen = -1
        while len(harness.requests) != seen:
            seen = len(harness.requests)
            for _ in range(200):
                await asyncio.sleep(0)
        assert len(harness.requests) < 400


async def test_draining_answers_what_is_in_flight():
    """A stopping broker takes nothing new, and owes nobody an answer when it closes."""
    async with serving() as (harness, connect):
        reader, writer = await connect()
        writer.write(framed(b"hold 1"))
        await until(lambda: harness.held)
        (connection,) = harness.connections
        drain = asyncio.ensure_future(connection.drain())
        await asyncio.sleep(0)
        harness.held.popleft().set_result(None)
        assert await read_frame(reader) == b"hold 1"
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()
        await drain


async def test_draining_resets_no_connection():
    """A client that goes on sending still gets the answers, and then the end: no reset takes them."""
    async with serving() as (harness, connect):
        reader, writer = await connect()
        writer.write(framed(b"hold 1"))
        await until(lambda: harness.held)
        (connection,) = harness.connections
        drain = asyncio.ensure_future(connection.drain())
        await asyncio.sleep(0)
        writer.write(framed(bytes(100_000)))
        await writer.drain()
        harness.held[0].set_result(None)
        assert await read_frame(reader) == b"hold 1"
        writer.write(framed(b"more"))
        assert await reader.read() == b""
        writer.close()
        await drain
        assert harness.requests == [b"hold 1"]
        assert not harness.connections


async def test_draining_waits_for_nobody_who_is_idle():
    """A client that asks for nothing need not see that the broker leaves; one that sleeps may not."""
    async with serving() as (harness, connect):
        await connect()
        await until(lambda: harness.connections)
        (connection,) = harness.connections
        connection._last_active -= 10
        drain = asyncio.ensure_future(connection.drain())
        await asyncio.sleep(0)
        assert drain.done()


async def test_answers_wait_outside_the_socket_while_the_client_takes_none():
    """Finished answers are counted and kept in their slots, not piled up in the transport."""
    async with serving() as (harness, connect):
        reader, writer = await connect()
        writer.transport.pause_reading()
        for _ in range(20):
            writer.write(framed(b"large"))
        await until(lambda: len(harness.held) == 20)
        for future in harness.held:
            future.set_result(None)
        await until(lambda: harness.metrics.unsent_bytes > 19 * LARGE_ANSWER_BYTES // 2)
        writer.transport.resume_reading()
        for _ in range(20):
            assert len(await read_frame(reader)) == LARGE_ANSWER_BYTES
        await until(lambda: harness.metrics.unsent_bytes == 0)


async def test_a_client_that_never_reads_cannot_outlive_its_close(monkeypatch):
    """Closing waits a while for the answers to be taken, then takes the socket away."""
    monkeypatch.setattr("broker.connection.LINGER_S", 0.01)
    async with serving() as (harness, connect):
        _, writer = await connect()
        writer.transport.pause_reading()
        for _ in range(8):
            writer.write(framed(b"large"))
        await until(lambda: len(harness.held) == 8)
        for future in harness.held:
            future.set_result(None)
        await until(lambda: harness.metrics.unsent_bytes > LARGE_ANSWER_BYTES)
        (connection,) = harness.connections
        await until(lambda: connection.is_idle_since(time.monotonic()))
        connection.close("as asked")
        await until(lambda: harness.metrics.connections_open == 0)
        assert harness.metrics.unsent_bytes == 0


async def test_a_large_request_that_creeps_can_be_told():
    """Whoever fills its request memory too slowly is found, and only while it fills it."""
    async with serving() as (harness, connect):
        _, writer = await connect()
        writer.write(struct.pack(">i", FRAME_SIZE_MAX) + b"only a little")
        await until(lambda: harness.budget.used == FRAME_SIZE_MAX)
        (connection,) = harness.connections
        assert connection.holds_memory_since(time.monotonic())
        assert not connection.holds_memory_since(time.monotonic() - 60)
        writer.write(b"s" * (FRAME_SIZE_MAX - len(b"only a little")))
        await until(lambda: harness.budget.used == 0)
        assert not connection.holds_memory_since(time.monotonic())
