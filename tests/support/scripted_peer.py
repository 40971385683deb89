"""A broker's native port with scripted answers, byte for byte.

async with scripted_peer(answers) as peer:
    await peers.call(1, peer.address, {"type": "t"}, timeout_s=5)
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgpack

from echoless.broker.config.loading import Address

_LENGTH = struct.Struct(">i")
SUCCESS = {"code": 0, "name": "NONE", "message": "", "retriable": False}

Answers = Callable[[dict[str, Any]], bytes | None]
"""The bytes to write for a message; None leaves it without an answer."""


def framed(fields: dict[str, Any]) -> bytes:
    """A message after its length."""
    body: bytes = msgpack.packb(fields)
    return _LENGTH.pack(len(body)) + body


def answer(message: dict[str, Any], **fields: Any) -> bytes:
    """The answer of success to `message`; a hello is answered as broker 1."""
    head = {name: message[name] for name in ("type", "correlation_id")}
    return framed({**head, "error": SUCCESS, "broker_id": 1, **fields})


@dataclass(slots=True)
class ScriptedPeer:
    """A listening port, and the messages it received."""

    address: Address
    received: list[dict[str, Any]] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    """Writers of the accepted connections, in order."""

    def break_connections(self) -> None:
        """Ends the connections, as a killed broker does."""
        for writer in self.writers:
            writer.transport.abort()


@asynccontextmanager
async def scripted_peer(answers: Answers = answer) -> AsyncIterator[ScriptedPeer]:
    """Serves until the block ends."""
    peer = ScriptedPeer(Address("127.0.0.1", 0))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer.writers.append(writer)
        try:
            while True:
                (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                message = msgpack.unpackb(await reader.readexactly(size))
                peer.received.append(message)
                data = answers(message)
                if data is not None:
                    writer.write(data)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    peer.address = Address(*server.sockets[0].getsockname()[:2])
    try:
        yield peer
    finally:
        server.close()
        peer.break_connections()
