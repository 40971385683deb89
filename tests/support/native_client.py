"""A minimal native client: one asyncio connection, any map, no retries."""

from __future__ import annotations

import asyncio
import ssl
import struct
from typing import Any

import msgpack

_ANSWER_TIMEOUT_S = 30.0


class NativeConnection:
    """One connection to the native port of one broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: str, context: ssl.SSLContext | None = None) -> NativeConnection:
        """`address` is `host:port`; with a context, by TLS."""
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port), limit=2**20, ssl=context))

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return

    def send(self, **fields: Any) -> None:
        self.send_frame(msgpack.packb(fields))

    def send_frame(self, frame: bytes) -> None:
        """Writes any bytes after their length."""
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def receive(self) -> dict[str, Any]:
        """The next answer. Raises `EOFError` if the broker closed the connection."""
        answer: dict[str, Any] = msgpack.unpackb(await self.receive_frame())
        return answer

    async def receive_frame(self) -> bytes:
        async with asyncio.timeout(_ANSWER_TIMEOUT_S):
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            return await self._reader.readexactly(size)

    async def call(self, type_: str, **fields: Any) -> dict[str, Any]:
        """Sends one message and returns its answer."""
        self.send(type=type_, **fields)
        return await self.receive()
