"""A TCP proxy that records the API versions a client uses, and forwards every byte.

The broker advertises its address, so that no connection bypasses it. A request begins with its
length (i32), its API key (i16) and its API version (i16).
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from types import TracebackType
from typing import Self

_HEAD = struct.Struct(">ihh")
_READ_BYTES_MAX = 1 << 16


class RequestRecorder:
    """Listens on `address`; forwards to `broker_address`, which is set once the broker runs."""

    def __init__(self) -> None:
        self.address = ""
        self.broker_address = ""
        self.requests: set[tuple[int, int]] = set()
        """(API key, API version) of every request so far."""
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        host, port = self.broker_address.rsplit(":", 1)
        # A peer that goes away ends the connection; the client under test judges what it saw.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            broker_reader, broker_writer = await asyncio.open_connection(host, int(port))
            answers = asyncio.create_task(_pass_on(broker_reader, writer))
            try:
                await self._pass_requests_on(reader, broker_writer)
            finally:
                answers.cancel()
                broker_writer.close()
        writer.close()
        self._connections.discard(task)

    async def _pass_requests_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            head = await reader.readexactly(_HEAD.size)
            length, key, version = _HEAD.unpack(head)
            self.requests.add((key, version))
            writer.write(head + await reader.readexactly(length + 4 - _HEAD.size))
            await writer.drain()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while content := await reader.read(_READ_BYTES_MAX):
            writer.write(content)
            await writer.drain()
    writer.close()
