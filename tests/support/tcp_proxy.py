"""A TCP proxy on the test's own event loop, controlled by the test."""

from __future__ import annotations

import asyncio
import contextlib

_CHUNK_BYTES = 65_536


class TcpProxy:
    """Listens on a free port of 127.0.0.1 and forwards to `port`.

    `loses_answers`: the server's bytes are read and discarded, on every connection. `is_down`: new
    connections are cut off at once. `holds_next`: the next connection is accepted, and never answered.
    """

    def __init__(self, port: int) -> None:
        self.loses_answers = False
        self.is_down = False
        self.holds_next = False
        self.answers_lost = asyncio.Event()
        """Set when an answer was discarded: then the server has done what was requested."""
        self._port = port
        self._links: set[asyncio.Task[None]] = set()
        self._inject: bytes = b""

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, port: int):
        """A proxy that ends with the block."""
        proxy = cls(port)
        proxy._server = await asyncio.start_server(proxy._accept, "127.0.0.1", 0)
        try:
            yield proxy
        finally:
            proxy._server.close()
            await proxy.cut()

    @property
    def address(self) -> str:
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def cut(self) -> None:
        """Breaks every connection, on both sides."""
        for link in list(self._links):
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def replace_next_answer(self, data: bytes) -> None:
        """Sends this to the client in place of the server's next bytes."""
        self._inject = data

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        try:
            if self.holds_next:
                self.holds_next = False
                await asyncio.get_running_loop().create_future()
            if not self.is_down:
                await self._link(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._links.discard(task)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._port)
        requests = asyncio.ensure_future(_copy(reader, server_writer))
        answers = asyncio.ensure_future(self._answer(server_reader, writer))
        try:
            await asyncio.wait({requests, answers}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            requests.cancel()
            answers.cancel()
            await asyncio.gather(requests, answers, return_exceptions=True)
            server_writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            if self.loses_answers:
                self.answers_lost.set()
                continue
            data, self._inject = self._inject or data, b""
            writer.write(data)
            await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
