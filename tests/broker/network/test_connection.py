"""One connection: order, back-pressure, and what ends it. Over a real loopback socket."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import os
import socket
import struct
import time
from collections import deque
from itertools import pairwise
from typing import Any

import pytest
import uvloop

from echoless.broker.doubt import StateInDoubtError
from echoless.broker.metrics import Metrics
from echoless.broker.network.answers import ANSWERS_WRITTEN_TOGETHER_BYTES
from echoless.broker.network.connection import Connection, Entrance
from echoless.broker.network.loop_turn import CROWDED_S, TURN_S, LoopTurn
from echoless.broker.network.memory_budget import MemoryBudget
from echoless.broker.network.reading import INFLIGHT_REQUESTS_MAX
from echoless.broker.network.request import CloseConnectionError, NeedsNoFrame
from echoless.broker.network.unsent_answers import UNSENT_BYTES_MAX, UnsentAnswers
from echoless.protocol.errors import DecodeError
from echoless.protocol.framing import SHARED_BUFFER_SIZE
from tests.broker.network.fed_connection import (
    LostTransport,
    PausedTransport,
    RecordingTransport,
    framed,
    receive,
)

FRAME_SIZE_MAX = 1_000_000
LARGE_ANSWER_BYTES = 4_000_000
BIG_ANSWER_BYTES = 40_000


def failure(payload: bytes) -> Exception:
    if payload.endswith(b"doubt"):
        return StateInDoubtError("the log")
    return AssertionError("a handler's") if payload.endswith(b"assertion") else KeyError("x")


def take(seconds: float) -> None:
    """Holds the event loop for so long, as processing a request does."""
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        pass


class Harness:
    """A server whose dispatcher the test scripts; requests are answered with their own bytes."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.held: deque[asyncio.Future[None]] = deque()
        self.connections: set[Connection] = set()
        self.metrics = Metrics()
        self.budget = MemoryBudget(FRAME_SIZE_MAX)
        self.unsent = UnsentAnswers(UNSENT_BYTES_MAX)
        self.entrance: Entrance | None = None

    def dispatch(self, frame, _peer):
        payload = bytes(frame)
        self.requests.append(payload)
        if payload.startswith((b"hold", b"large")):
            released = asyncio.get_running_loop().create_future()
            self.held.append(released)
            answer = self.answer_later(payload, released)
            return NeedsNoFrame(answer) if b"without frame" in payload[:20] else answer
        if payload.startswith(b"slow"):
            take(2 * TURN_S)
        if payload.startswith(b"half a turn"):
            take(TURN_S / 2)
        if payload.startswith(b"big"):
            return (framed(bytes(BIG_ANSWER_BYTES)),)
        if payload.startswith(b"silent"):
            return None
        if payload.startswith(b"close"):
            raise CloseConnectionError("as asked")
        if payload.startswith(b"garbage"):
            raise DecodeError("as asked")
        if payload.startswith(b"bug now"):
            raise failure(payload)
        if payload.startswith(b"bug later"):
            return self.fail_later(payload)
        return (framed(payload),)

    async def fail_later(self, payload):
        await asyncio.sleep(0)
        raise failure(payload)

    async def answer_later(self, payload, released):
        await released
        return (framed(bytes(LARGE_ANSWER_BYTES) if payload == b"large" else payload[:10]),)

    def connection(self):
        connection = Connection(
            self.dispatch,
            connection_id=1,
            frame_size_max=FRAME_SIZE_MAX,
            budget=self.budget,
            unsent=self.unsent,
            connections=self.connections,
            metrics=self.metrics,
        )
        connection.entrance = self.entrance
        return connection


class MutingEntrance:
    """Has every connection wait."""

    def enter(self, connection: Connection) -> bool:
        connection.mute()
        return False

    def leave(self, connection: Connection) -> None:
        pass


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
    async with asyncio.timeout(60):
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)


async def until(condition) -> None:
    """Lets the loop run until the condition holds."""
    async with asyncio.timeout(60):
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


async def come_to_a_closed_entrance() -> tuple[int, list[bytes]]:
    """Sends more than a buffer takes to a connection that waits; bytes read meanwhile, and the answers after it."""
    async with serving() as (harness, connect):
        harness.entrance = MutingEntrance()
        reader, writer = await connect()
        writer.write(framed(b"request") * SHARED_BUFFER_SIZE)
        await until(lambda: harness.connections)
        (waiting,) = harness.connections
        harness.entrance = None
        other_reader, other_writer = await connect()
        for _ in range(50):  # turns of the loop in which it could be read
            other_writer.write(framed(b"other"))
            await read_frame(other_reader)
        read = harness.metrics.received_bytes_total
        waiting.unmute()
        return read, [await read_frame(reader) for _ in range(SHARED_BUFFER_SIZE)]


@pytest.mark.parametrize("loop_factory", [uvloop.new_event_loop, asyncio.SelectorEventLoop])
def test_a_connection_that_waits_at_the_entrance_is_not_read(loop_factory):
    """Neither by uvloop nor by asyncio's own loop: both start to read after the connection is made."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        read, answers = runner.run(come_to_a_closed_entrance())
    assert read == 50 * len(framed(b"other"))
    assert answers == [b"request"] * SHARED_BUFFER_SIZE


async def test_a_pipeline_of_slow_requests_lets_others_have_their_turn():
    """One connection's requests are not worked on all at once, and all are answered, in order."""
    async with serving() as (harness, connect):
        (reader, writer), (other_reader, other_writer) = await connect(), await connect()
        slow = [f"slow {number}".encode() for number in range(20)]
        writer.write(b"".join(map(framed, slow)))
        other_writer.write(framed(b"quick"))
        assert await read_frame(other_reader) == b"quick"
        assert len(harness.requests) < len(slow)
        assert [await read_frame(reader) for _ in slow] == slow


async def test_the_slow_requests_of_many_connections_share_turns_fairly():
    """Simultaneous requests on all of them are not processed in one turn, and all are answered."""
    async with serving() as (harness, connect):
        clients = [await connect() for _ in range(12)]
        loop, seen = asyncio.get_running_loop(), [0]

        def see() -> None:
            seen.append(len(harness.requests))
            if seen[-1] < 2 * len(clients):
                loop.call_soon(see)

        for _, writer in clients:
            os.write(writer.get_extra_info("socket").fileno(), 2 * framed(b"slow"))
        see()
        for reader, _ in clients:
            assert [await read_frame(reader) for _ in range(2)] == [b"slow", b"slow"]
        most = max(after - before for before, after in pairwise(seen))
        assert most <= CROWDED_S / (2 * TURN_S) + 1


async def test_the_reads_of_one_step_share_the_turn_of_their_connection():
    """The loop reads a socket up to 32 times, as long as that fills the buffer, before it looks at another."""
    connection, transport = Harness().connection(), PausedTransport()
    connection.connection_made(transport)
    request = framed(b"half a turn".ljust(2 * SHARED_BUFFER_SIZE))
    for _ in range(3):
        receive(connection, request)
        assert transport.is_paused
        await until(lambda: not transport.is_paused)
    connection.connection_lost(None)


@pytest.fixture
def endless_turns(monkeypatch):
    """A connection processes all that it has received, however busy the machine is."""
    monkeypatch.setattr(LoopTurn, "ends_at", lambda _self, _now_s: math.inf)


async def test_a_read_that_takes_all_there_is_needs_no_rest(endless_turns):
    """The loop goes on to others by itself; a rest would cost every client that sends small requests."""
    connection, transport = Harness().connection(), PausedTransport()
    connection.connection_made(transport)
    receive(connection, framed(b"half a turn"))
    assert not transport.is_paused
    connection.connection_lost(None)


async def test_the_answers_of_one_read_leave_in_one_write(endless_turns):
    """A system call for each answer costs more than the rest of a small request."""
    connection, transport = Harness().connection(), RecordingTransport()
    connection.connection_made(transport)
    requests = [framed(str(number).encode()) for number in range(5)]
    receive(connection, b"".join(requests))
    assert transport.writes == [b"".join(requests)]
    connection.connection_lost(None)


async def test_bytes_that_come_while_a_connection_rests_are_not_left_lying(endless_turns):
    """Frames were cut before they came, and were the last there were then: a client waited for its next request."""
    harness, transport = Harness(), RecordingTransport()
    connection = harness.connection()
    connection.connection_made(transport)
    connection.dispatch = lambda frame, peer: (connection.mute(), harness.dispatch(frame, peer))[1]
    receive(connection, framed(b"first") + framed(b"second"))
    connection.dispatch = harness.dispatch
    receive(connection, framed(b"third"))
    assert transport.writes == [framed(b"first")]
    connection.unmute()
    assert b"".join(transport.writes[1:]) == framed(b"second") + framed(b"third")
    connection.connection_lost(None)


async def test_answers_are_written_before_a_connection_is_closed(endless_turns):
    """The client of a bad frame gets the answers to the requests before it."""
    connection, transport = Harness().connection(), RecordingTransport()
    connection.connection_made(transport)
    receive(connection, framed(b"good") + framed(b"garbage") + framed(b"not served"))
    assert transport.writes == [framed(b"good"), b"closed"]
    connection.connection_lost(None)


async def test_a_client_that_ends_its_side_as_the_last_answer_is_made_is_let_go(endless_turns):
    """The answer was ready before the task that waits for it began: nothing was left to wait for, and nothing closed."""
    harness = Harness()
    connection, transport = harness.connection(), RecordingTransport()
    connection.connection_made(transport)
    receive(connection, framed(b"hold"))
    await asyncio.sleep(0)
    harness.held.popleft().set_result(None)
    await asyncio.sleep(0)
    assert connection.eof_received()
    for _ in range(10):
        await asyncio.sleep(0)
    assert transport.writes == [framed(b"hold"), b"closed"]
    connection.connection_lost(None)


async def test_many_bytes_of_answers_leave_before_the_rest_is_processed(endless_turns):
    """Memory and the client's wait are bounded; the connection sees early that a client reads slowly."""
    connection, transport = Harness().connection(), RecordingTransport()
    connection.connection_made(transport)
    receive(connection, framed(b"big") * 30)
    assert b"".join(transport.writes) == framed(bytes(BIG_ANSWER_BYTES)) * 30
    assert max(map(len, transport.writes)) <= ANSWERS_WRITTEN_TOGETHER_BYTES + BIG_ANSWER_BYTES + 4
    connection.connection_lost(None)


@pytest.mark.filterwarnings("error")
async def test_a_client_that_is_lost_before_its_request_began_gives_its_memory_back():
    """The task of an answer may not have taken its first step; its `finally` must run all the same."""
    harness = Harness()
    connection = harness.connection()
    connection.connection_made(LostTransport())
    receive(connection, framed(b"hold".ljust(FRAME_SIZE_MAX)))
    assert harness.budget.used >= FRAME_SIZE_MAX
    connection.connection_lost(None)
    await until(lambda: harness.held and harness.held[0].cancelled())
    await until(lambda: harness.budget.used == 0)
    gc.collect()
    assert harness.unsent.total == 0


def told_by_the_loop() -> list[Any]:
    """The exceptions that reach the loop's handler, which in a broker ends the process."""
    told: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context.get("exception")))
    return told


@pytest.mark.parametrize("when", ["now", "later"])
@pytest.mark.parametrize("what", ["assertion", "key"])
async def test_a_bug_in_a_handler_ends_the_connection_that_met_it(when, what, caplog):
    """It is counted and logged with its traceback; others are served, and the process continues."""
    told = told_by_the_loop()
    async with serving() as (harness, connect):
        (reader, writer), (other_reader, other_writer) = await connect(), await connect()
        writer.write(framed(f"bug {when} {what}".encode()))
        assert await reader.read() == b""
        other_writer.write(framed(b"echo"))
        assert await read_frame(other_reader) == b"echo"
        assert harness.metrics.requests_failed_total == 1
    (failed,) = [record for record in caplog.records if record.exc_info]
    assert failed.levelname == "ERROR"
    assert told == []


@pytest.mark.parametrize("when", ["now", "later"])
async def test_doubt_about_state_reaches_the_loop(when):
    """`_on_unhandled` of `broker/serve.py` then ends the process."""
    told = told_by_the_loop()
    async with serving() as (_, connect):
        reader, writer = await connect()
        writer.write(framed(f"bug {when} doubt".encode()))
        assert await reader.read() == b""
    assert [type(error) for error in told] == [StateInDoubtError]


async def test_a_request_without_answer_keeps_the_order():
    """acks=0 leaves no gap in the answers of the others."""
    async with serving() as (_, connect):
        reader, writer = await connect()
        writer.write(framed(b"silent") + framed(b"loud"))
        assert await read_frame(reader) == b"loud"


@pytest.mark.parametrize("request_bytes", [b"close me", b"garbage"])
async def test_a_request_that_cannot_be_served_ends_the_connection(request_bytes):
    """The client sees the end of the stream; no one else is disturbed."""
    async with serving() as (_, connect):
        reader, writer = await connect()
        other_reader, other_writer = await connect()
        writer.write(framed(request_bytes))
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        other_writer.write(framed(b"alive"))
        assert await read_frame(other_reader) == b"alive"


async def test_a_hostile_length_ends_the_connection_without_taking_memory():
    """A frame that claims two gigabytes is refused at its length."""
    async with serving() as (harness, connect):
        reader, writer = await connect()
        writer.write(struct.pack(">i", 2**31 - 1))
        async with asyncio.timeout(60):
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
    """Large requests fill the budget; the next is read when one of them is answered."""
    async with serving() as (harness, connect):
        large = b"hold" + bytes(FRAME_SIZE_MAX - 4)
        streams = [await connect() for _ in range(4)]
        for index, (_, writer) in enumerate(streams):
            writer.write(framed(large))
            if index < 3:
                await until(lambda index=index: len(harness.requests) == index + 1)
        await until(lambda: harness.budget.is_awaited)
        assert len(harness.requests) == 3
        assert harness.budget.used <= harness.budget.bytes_max
        harness.held.popleft().set_result(None)
        await until(lambda: len(harness.requests) == 4)
        while harness.held:
            harness.held.popleft().set_result(None)
        for reader, _ in streams:
            await read_frame(reader)
        await until(lambda: harness.budget.used == 0)


async def test_a_frame_that_is_only_announced_takes_no_request_memory():
    """Idle connections that announce large frames block no one."""
    async with serving() as (harness, connect):
        idle = [await connect() for _ in range(12)]
        for _, writer in idle:
            writer.write(struct.pack(">i", FRAME_SIZE_MAX) + bytes(10_000))
        reader, writer = await connect()
        writer.write(framed(b"1" * FRAME_SIZE_MAX))
        assert len(await read_frame(reader)) == FRAME_SIZE_MAX
        assert harness.budget.used == 0
        assert harness.metrics.connections_open == 13


async def test_memory_comes_back_when_a_client_vanishes_in_mid_frame():
    """A connection that is lost gives back what it had reserved."""
    async with serving() as (harness, connect):
        _, writer = await connect()
        writer.write(struct.pack(">i", FRAME_SIZE_MAX) + bytes(400_000))
        await until(lambda: harness.budget.used == FRAME_SIZE_MAX)
        writer.transport.abort()
        await until(lambda: harness.budget.used == 0)
        assert harness.metrics.connections_open == 0


async def test_stalled_large_frames_make_way_for_others():
    """Requests that stop in the middle lose their connection once another one needs their memory."""
    async with serving() as (harness, connect):
        stalled = [await connect() for _ in range(3)]
        for count, (_, writer) in enumerate(stalled, 1):
            writer.write(struct.pack(">i", FRAME_SIZE_MAX) + bytes(400_000))
            await until(lambda count=count: harness.budget.used == count * FRAME_SIZE_MAX)
        reader, writer = await connect()
        writer.write(framed(b"1" * FRAME_SIZE_MAX))
        assert len(await read_frame(reader)) == FRAME_SIZE_MAX
        assert harness.budget.evicted_total > 0
        assert not harness.budget.is_awaited


async def test_an_answer_that_needs_no_frame_gives_its_memory_back_at_once():
    """A produce that waits for its replicas keeps no request memory meanwhile."""
    async with serving() as (harness, connect):
        _, writer = await connect()
        writer.write(framed(b"hold without frame" + bytes(FRAME_SIZE_MAX - 18)))
        await until(lambda: harness.held)
        await until(lambda: harness.budget.used == 0)
        harness.held.popleft().set_result(None)


async def test_a_client_that_does_not_read_is_not_read_either():
    """Unread answers stop the requests, so memory stays flat."""
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
    """A stopping broker accepts nothing new, and owes no answer when it closes."""
    async with serving() as (harness, connect):
        reader, writer = await connect()
        writer.write(framed(b"hold 1"))
        await until(lambda: harness.held)
        (connection,) = harness.connections
        drain = asyncio.ensure_future(connection.drain())
        await asyncio.sleep(0)
        harness.held.popleft().set_result(None)
        assert await read_frame(reader) == b"hold 1"
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
        await drain


async def test_draining_resets_no_connection():
    """A client that keeps sending still gets the answers, and then the end: no reset drops them."""
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
        await until(lambda: harness.unsent.total > 19 * LARGE_ANSWER_BYTES // 2)
        writer.transport.resume_reading()
        for _ in range(20):
            assert len(await read_frame(reader)) == LARGE_ANSWER_BYTES
        await until(lambda: harness.unsent.total == 0)


async def test_a_client_that_never_reads_cannot_outlive_its_close(monkeypatch):
    """Closing waits a while for the answers to be taken, then takes the socket away."""
    monkeypatch.setattr("echoless.broker.network.connection.LINGER_S", 0.01)
    async with serving() as (harness, connect):
        _, writer = await connect()
        writer.transport.pause_reading()
        for _ in range(8):
            writer.write(framed(b"large"))
        await until(lambda: len(harness.held) == 8)
        for future in harness.held:
            future.set_result(None)
        await until(lambda: harness.unsent.total > LARGE_ANSWER_BYTES)
        (connection,) = harness.connections
        await until(lambda: connection.is_idle_since(time.monotonic()))
        connection.close("as asked")
        await until(lambda: harness.metrics.connections_open == 0)
        assert harness.unsent.total == 0


async def test_a_client_that_takes_no_answers_is_closed_once_they_are_many(monkeypatch):
    """Answers of one client that reads nothing do not keep the room that others need."""
    monkeypatch.setattr("echoless.broker.network.unsent_answers.SILENCE_S", 0.1)
    monkeypatch.setattr("echoless.broker.network.unsent_answers.SWEEP_INTERVAL_S", 0.01)
    async with serving() as (harness, connect):
        harness.unsent = UnsentAnswers(10 * LARGE_ANSWER_BYTES)
        _, silent = await connect()
        silent.transport.pause_reading()
        for _ in range(6):
            silent.write(framed(b"large"))
        await until(lambda: len(harness.held) == 6)
        for future in harness.held:
            future.set_result(None)
        await until(lambda: harness.unsent.evicted_total == 1)
        await until(lambda: harness.unsent.total == 0)
        await until(lambda: not harness.connections)
        reader, writer = await connect()
        writer.write(framed(b"alive"))
        assert await read_frame(reader) == b"alive"


async def test_small_requests_that_wait_are_bounded_over_all_connections():
    """Above the bound each connection has one request in flight, and all are answered in the end."""
    async with serving() as (harness, connect):
        waiting = harness.budget.waiting
        payload = b"hold" + bytes(9_996)
        streams = [await connect() for _ in range(20)]
        for _, writer in streams:
            writer.write(framed(payload) * 30)
        await until(lambda: waiting.total >= waiting.bytes_max // 2)
        await until(lambda: len(harness.connections) == 20)
        for _ in range(200):
            await asyncio.sleep(0)
        assert waiting.total <= waiting.bytes_max // 2 + 20 * len(payload)
        answered = 0
        reading = [asyncio.ensure_future(read_frame(reader)) for reader, _ in streams]
        while answered < 20 * 30:
            while harness.held:
                harness.held.popleft().set_result(None)
            done, _ = await asyncio.wait(reading, timeout=10, return_when=asyncio.FIRST_COMPLETED)
            assert done, "a connection is not read any more"
            answered += len(done)
            reading = [
                asyncio.ensure_future(read_frame(streams[index][0])) if one in done else one
                for index, one in enumerate(reading)
            ]
        for one in reading:
            one.cancel()
        await until(lambda: waiting.total == 0)
