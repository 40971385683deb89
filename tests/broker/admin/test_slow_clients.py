"""Clients that send too slowly, or too much.

Each gets an error or is closed, and costs little meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from echoless.broker.admin.body import BODY_BYTES_MAX
from echoless.protocol.dedup import BatchMetadata, ProducerEntry
from tests.broker.admin.admin_client import AdminClient
from tests.broker.admin.raw_http import read_answer, talk
from tests.support.in_process import Running

_SHORT_S = 0.3
_END = b'"address": null}]}'
"""The end of a list of producers."""


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that waits only briefly."""
    monkeypatch.setattr("echoless.broker.admin.application.HEAD_TIMEOUT_S", _SHORT_S)
    monkeypatch.setattr("echoless.broker.admin.body.BODY_TIMEOUT_S", _SHORT_S)
    monkeypatch.setattr("echoless.broker.admin.application.BODY_TIMEOUT_S", _SHORT_S)
    monkeypatch.setattr("echoless.broker.admin.protocol.ANSWER_TIMEOUT_S", _SHORT_S)


def _post(address: str, length: str, *, kind: str = "Content-Length") -> bytes:
    return (
        f"POST /faults HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"
        f"{kind}: {length}\r\n\r\n"
    ).encode()


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize(
    "data",
    [b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", b"G"],
    ids=["nothing", "half of the headers", "one byte"],
)
async def test_a_request_has_to_arrive(admin_address: str, data: bytes) -> None:
    """A connection that sends nothing, or not all of its headers, is closed."""
    assert await talk(admin_address, data) == b""


@pytest.mark.usefixtures("_impatient")
async def test_a_trickle_of_headers_wins_no_time(admin_address: str) -> None:
    """The time counts for the whole head, not from its last byte."""
    host, _, port = admin_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /health HTTP/1.1\r\n")

    async def trickle() -> None:
        while True:
            writer.write(b"X-Slow: 1\r\n")
            await asyncio.sleep(_SHORT_S / 30)

    trickling = asyncio.create_task(trickle())
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionResetError):  # what it had sent was not read any more
            assert await reader.read() == b""
    trickling.cancel()
    writer.close()


@pytest.mark.slow
@pytest.mark.usefixtures("_impatient")
async def test_an_idle_connection_is_closed_after_its_answer(admin_address: str) -> None:
    """Keeping it alive is a favour with an end; so is half of a second request."""
    for rest in (b"", b"GET /hea"):
        answered = await talk(
            admin_address, f"GET /health HTTP/1.1\r\nHost: {admin_address}\r\n\r\n".encode() + rest
        )
        assert read_answer(answered).status == 200


@pytest.mark.slow
@pytest.mark.usefixtures("_impatient")
async def test_a_body_has_to_arrive(running: Running, admin_address: str) -> None:
    """Half of one is answered 408, and the connection ends."""
    answer = read_answer(await talk(admin_address, _post(admin_address, "100") + b'{"action"'))
    assert (answer.status, running.broker.faults.documents()) == (408, [])


@pytest.mark.usefixtures("_impatient")
async def test_a_body_that_nobody_reads_is_not_waited_for_long(admin_address: str) -> None:
    """The answer is there at once, the rest of the body is taken for a moment, then all is closed."""
    head = _post(admin_address, "1000000000").replace(b"POST /faults", b"GET /health")
    assert read_answer(await talk(admin_address, head + b"x" * 1000)).status == 200


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("kind", ["Content-Length", "Transfer-Encoding"])
async def test_a_body_is_bounded(admin_address: str, kind: str) -> None:
    """It is bounded with or without an announced length; nothing beyond the limit is kept."""
    size = BODY_BYTES_MAX + 1
    if kind == "Content-Length":
        data = _post(admin_address, str(size)) + b" " * size
    else:
        chunk = f"{size:x}\r\n".encode() + b" " * size + b"\r\n0\r\n\r\n"
        data = _post(admin_address, "chunked", kind=kind) + chunk
    answer = read_answer(await talk(admin_address, data))
    assert (answer.status, "at most" in answer.document["error"]) == (413, True)


async def test_the_largest_body_is_read(running: Running, admin_address: str) -> None:
    """The limit itself is allowed."""
    body = b'{"action": "twice"}'.ljust(BODY_BYTES_MAX)
    data = _post(admin_address, str(len(body))).replace(
        b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"
    )
    assert read_answer(await talk(admin_address, data + body)).status == 201
    assert running.broker.faults.documents()


def _fill(admin: AdminClient) -> None:
    """Gives one partition so many producers that an answer does not fit into any buffer on the way."""
    batch = BatchMetadata(1, 11, 1, 99, 0xABC)
    for producer_id in range(10_000):
        admin.broker.partitions["orders", 1].log.producers.put(
            producer_id, ProducerEntry(2, 0, 1234, (batch,) * 5)
        )


async def _ask_for_all(
    admin: AdminClient, then: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that begins to read only when its buffer of a few bytes is asked for more."""
    host, _, port = admin.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1)
    path = "/producers/orders/1?limit=10000"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: {then}\r\n\r\n".encode())
    return reader, writer


@pytest.mark.slow
@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("then", ["close", "keep-alive"])
async def test_an_answer_has_to_be_read(
    admin: AdminClient, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """A client that does not is disconnected, so that its answer does not stay in memory."""
    _fill(admin)
    told, lines = asyncio.Event(), list[str]()

    def log(_level: int, _host: str, message: str, *arguments: object) -> None:
        lines.append(message % arguments)
        told.set()

    monkeypatch.setattr("echoless.broker.admin.protocol.limited", SimpleNamespace(log=log))
    reader, writer = await _ask_for_all(admin, then)
    async with asyncio.timeout(20):
        await told.wait()
        assert "from 127.0.0.1: it has not read its answer" in lines[0]
        with contextlib.suppress(ConnectionResetError):
            assert not (await _rest(reader)).endswith(_END)
    writer.close()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """Everything up to the end, in large pieces: `read()` takes as little at a time as the buffer holds."""
    found = []
    while piece := await reader.read(2**16):
        found.append(piece)
    return b"".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("then", ["close", "keep-alive"])
async def test_a_large_answer_may_take_its_time(admin: AdminClient, then: str) -> None:
    """A slow answer is fine as long as it is being read."""
    _fill(admin)
    reader, writer = await _ask_for_all(admin, then)
    async with asyncio.timeout(20):
        found = b""
        while not found.endswith(_END):
            piece = await reader.read(2**16)
            assert piece, f"the answer ended with {found[-50:]!r}"
            found += piece
    assert read_answer(found).document["count"] == 10_000
    writer.close()
