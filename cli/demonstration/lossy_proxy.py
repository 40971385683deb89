"""A TCP proxy for the Kafka protocol that loses acknowledgements.

It forwards whole frames and watches for produce requests. Every so often it swallows the answer to
one and cuts the connection, as a network does that breaks between the broker's append and the
producer's reading of it. The records are stored; only the producer does not know.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Final, Self

_LENGTH: Final = struct.Struct(">i")
_REQUEST_START: Final = struct.Struct(">hhi")
_PRODUCE_KEY: Final = 0
FRAME_BYTES_MAX: Final = 100 * 1024 * 1024


class LossyProxy:
    """Listens on a free port; `lose_every` 0 loses nothing."""

    def __init__(self) -> None:
        self.port = 0
        self.broker_port = 0
        """Where to forward to; set before the first client comes."""
        self.lose_every = 0
        self.acknowledgements = 0
        """Answers to produce requests that came by."""
        self.lost = 0
        """Of these, the ones that were swallowed."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Both directions of one connection; when one ends, so does the other."""
        awaited: set[int] = set()
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            to_broker = await asyncio.open_connection("127.0.0.1", self.broker_port)
            pumps = [
                asyncio.ensure_future(_pump_requests(reader, to_broker[1], awaited)),
                asyncio.ensure_future(self._pump_answers(to_broker[0], writer, awaited)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
                to_broker[1].close()
        writer.close()

    async def _pump_answers(
        self, broker: asyncio.StreamReader, client: asyncio.StreamWriter, awaited: set[int]
    ) -> None:
        while True:
            frame = await _read_frame(broker)
            (correlation_id,) = _LENGTH.unpack_from(frame)
            if correlation_id in awaited:
                awaited.discard(correlation_id)
                if self._is_lost():
                    return
            await _write_frame(client, frame)

    def _is_lost(self) -> bool:
        self.acknowledgements += 1
        is_lost = self.lose_every > 0 and self.acknowledgements % self.lose_every == 0
        self.lost += is_lost
        return is_lost


async def _pump_requests(
    client: asyncio.StreamReader, broker: asyncio.StreamWriter, awaited: set[int]
) -> None:
    while True:
        frame = await _read_frame(client)
        api_key, _, correlation_id = _REQUEST_START.unpack_from(frame)
        if api_key == _PRODUCE_KEY:
            awaited.add(correlation_id)
        await _write_frame(broker, frame)


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if not _REQUEST_START.size <= size + _LENGTH.size <= FRAME_BYTES_MAX:
        raise OSError(f"a frame of {size} bytes")
    return await reader.readexactly(size)


async def _write_frame(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(_LENGTH.pack(len(frame)) + frame)
    await writer.drain()
