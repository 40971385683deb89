"""Servers that do the least that a produce request needs, for `benchmarks.request_floor`: `python -m benchmarks.floor_server`.

Each takes frames whole and answers with bytes that it made before, without looking at what is in them. Prints its port.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import socket
import struct
from pathlib import Path
from typing import Final

import uvloop

TOPIC: Final = "floor"
_INIT_PRODUCER_ID: Final = 22
_BUFFER_BYTES: Final = 256 * 1024
_TRAILING_TAGS: Final = 3
_PRODUCER_ID: Final = struct.pack(">bihqhb", 0, 0, 0, 1000, 0, 0)
"""The answer to InitProducerId v2 after the correlation id."""
_PRODUCED: Final = (
    bytes((0, 2, len(TOPIC) + 1))
    + TOPIC.encode()
    + struct.pack(">bihqqqbbb", 2, 0, 0, 0, -1, 0, 1, 0, 0)
    + struct.pack(">bib", 0, 0, 0)
)
"""The answer to Produce v9 with one batch, after the correlation id."""


class _Frames:
    """The bytes that one connection has received, and the answers to them."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._position = 0
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0

    @property
    def room(self) -> memoryview:
        """The room for the next bytes."""
        return self._view[self._end :]

    def answers(self, received: int) -> bytes:
        """The answers to the frames that these bytes complete."""
        end, begin, answers = self._end + received, 0, []
        while end - begin >= 4:
            (size,) = struct.unpack_from(">i", self._buffer, begin)
            if end - begin < 4 + size:
                break
            answers.append(self._answer(begin + 4, begin + 4 + size))
            begin += 4 + size
        self._view[: end - begin] = self._view[begin:end]
        self._end = end - begin
        return b"".join(answers)

    def _answer(self, begin: int, end: int) -> bytes:
        is_first = self._buffer[begin + 1] == _INIT_PRODUCER_ID
        if self._descriptor is not None and not is_first:
            batch = self._view[begin + len(TOPIC) : end - _TRAILING_TAGS]
            self._position += os.pwritev(self._descriptor, (batch,), self._position)
        body = _PRODUCER_ID if is_first else _PRODUCED
        correlation_id = self._buffer[begin + 4 : begin + 8]
        return struct.pack(">i", 4 + len(body)) + correlation_id + body


class _Protocol(asyncio.BufferedProtocol):
    """Answers the frames of one read in one write."""

    def __init__(self, descriptor: int | None) -> None:
        self._frames = _Frames(descriptor)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._frames.room

    def buffer_updated(self, nbytes: int) -> None:
        if answers := self._frames.answers(nbytes):
            self._transport.write(answers)  # type: ignore[attr-defined]


async def _serve_by_uvloop(path: Path | None) -> None:
    descriptor = None if path is None else os.open(path, os.O_RDWR | os.O_CREAT)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Protocol(descriptor), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _serve_by_epoll() -> None:
    """The same without an event loop: one system call says who has sent something, one reads, one writes."""
    listener, epoll = socket.create_server(("127.0.0.1", 0)), select.epoll()
    print(listener.getsockname()[1], flush=True)
    epoll.register(listener, select.EPOLLIN)
    connections: dict[int, tuple[socket.socket, _Frames]] = {}
    while True:
        for descriptor, _ in epoll.poll():
            if descriptor == listener.fileno():
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections[connection.fileno()] = connection, _Frames(None)
                epoll.register(connection, select.EPOLLIN)
            elif not _serve_one(*connections[descriptor]):
                connections.pop(descriptor)[0].close()


def _serve_one(connection: socket.socket, frames: _Frames) -> bool:
    """Answers what has arrived; returns whether the client is still there."""
    try:
        received = connection.recv_into(frames.room)
        if answers := frames.answers(received):
            connection.sendall(answers)
    except ConnectionError:
        return False
    return received > 0


def main() -> None:
    """Serves until it is killed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floor_server", description=__doc__)
    parser.add_argument("--file", type=Path, help="each batch is written to it")
    parser.add_argument("--epoll", action="store_true", help="without uvloop, and without a file")
    arguments = parser.parse_args()
    if arguments.epoll:
        _serve_by_epoll()
    else:
        uvloop.run(_serve_by_uvloop(arguments.file))


if __name__ == "__main__":
    main()
