"""The asyncio connection, against brokers that answer, lie, hang and hang up."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from echoless.client.connection_errors import ConnectionFailedError
from echoless.client.pipelined_connection import PipelinedConnection
from tests.support.in_process import in_process

Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
_VERSIONS = struct.pack(">hi", 0, 2) + struct.pack(">hhhhhh", 18, 0, 0, 3, 0, 1)
"""ApiVersions 0, Metadata 0 to 1."""
_TOO_NEW = struct.pack(">hi", 35, 0)
"""ApiVersions of a version above 0."""
_METADATA = struct.pack(">iii", 0, -1, 0)
"""Metadata v1: no brokers, no controller, no topics."""
ASK = {"topics": []}


@asynccontextmanager
async def serving(answer: Answer, timeout_s: float = 10) -> AsyncIterator[PipelinedConnection]:
    """A connection to a broker that answers ApiVersions well and leaves the rest to `answer`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(size)
                api_key, version = struct.unpack_from(">hh", request)
                if api_key == 18:
                    writer.write(framed(request, _TOO_NEW if version else _VERSIONS))
                else:
                    await answer(request, writer)
        except (EOFError, OSError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = await PipelinedConnection.open("127.0.0.1", port, timeout_s)
    try:
        yield connection
    finally:
        await connection.close()
        server.close()


def framed(request: bytes, body: bytes) -> bytes:
    return struct.pack(">i", 4 + len(body)) + request[4:8] + body


async def answer_well(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(framed(request, _METADATA))


async def hang_up(_: bytes, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def say_nothing(_: bytes, writer: asyncio.StreamWriter) -> None:
    pass


async def lie(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(framed(b"\0\0\0\0\xff\xff\xff\xff", _METADATA))


async def end_in_mid_answer(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(framed(request, _METADATA)[:-3])
    writer.close()


async def claim_too_much(_: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(struct.pack(">i", 2**31 - 1))


async def answer_nonsense(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(framed(request, _METADATA[:-2]))


async def test_requests_are_answered_in_their_order():
    """Many requests are in flight at once."""
    async with serving(answer_well) as connection:
        answers = [connection.send("metadata", ASK) for _ in range(20)]
        assert [one.brokers for one in await asyncio.gather(*answers)] == [()] * 20


async def test_answers_may_come_byte_by_byte():
    """How the bytes arrive does not matter."""

    async def answer_slowly(request: bytes, writer: asyncio.StreamWriter) -> None:
        for byte in framed(request, _METADATA):
            writer.write(bytes([byte]))
            await writer.drain()

    async with serving(answer_slowly) as connection:
        assert (await connection.send("metadata", ASK)).topics == ()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (hang_up, "lost"),
        (lie, "does not speak"),
        (end_in_mid_answer, "lost"),
        (claim_too_much, "does not speak"),
        (answer_nonsense, "cannot be read"),
    ],
)
async def test_bad_answers_fail_everything_under_way(answer, reason):
    """Whatever was sent has no outcome then, and nothing more is sent."""
    async with serving(answer) as connection:
        sent = [connection.send("metadata", ASK) for _ in range(3)]
        for future in sent:
            with pytest.raises(ConnectionFailedError, match=reason):
                await future
        assert connection.is_closed
        with pytest.raises(ConnectionFailedError, match="closed"):
            connection.send("metadata", ASK)


async def test_silence_ends_the_connection():
    """A late answer would belong to a request that was sent again by then."""
    async with serving(say_nothing, timeout_s=0.02) as connection:
        with pytest.raises(ConnectionFailedError, match=r"not answered within 0\.02 s"):
            await connection.send("metadata", ASK)
        assert connection.is_closed


async def test_unserved_api_is_named():
    """Nothing is sent then, and the connection stays."""
    async with serving(answer_well) as connection:
        assert not connection.serves("describe_producers")
        with pytest.raises(ConnectionFailedError, match="does not serve describe_producers"):
            connection.send("describe_producers", {"topics": []})
        assert not connection.is_closed


async def test_unreachable_broker_is_named():
    """The error has its address."""
    with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1:1 "):
        await PipelinedConnection.open("127.0.0.1", 1, 10)


async def test_close_fails_what_is_under_way():
    """No one waits for ever."""
    async with serving(say_nothing) as connection:
        future = connection.send("metadata", ASK)
        await connection.close()
        with pytest.raises(ConnectionFailedError):
            await future


async def test_a_close_can_be_cancelled():
    """A caller's timeout that expires while the connection is closed is not lost."""
    async with serving(say_nothing) as connection:
        closing = asyncio.create_task(connection.close())
        await asyncio.sleep(0)  # it waits for its reader
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing


async def test_newest_shared_version_is_spoken(tmp_path):
    """A real broker's metadata comes with topic ids and leader epochs."""
    async with in_process(tmp_path) as running:
        host, _, port = running.kafka_address.rpartition(":")
        connection = await PipelinedConnection.open(host, int(port), 10)
        fields = {
            "topics": [{"name": "t", "topic_id": None}],
            "allow_auto_topic_creation": True,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        answer = await connection.send("metadata", fields)
        assert answer.topics[0].topic_id is not None
        await connection.close()
