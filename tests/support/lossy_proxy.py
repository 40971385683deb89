"""A TCP proxy that loses acknowledgements: it swallows answers and cuts connections, from a seed.

Requests always reach the broker, so every fault leaves the producer in doubt: the request was
processed, and its answer is gone, whole or from the middle on. Runs in a separate thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from concurrent.futures import Future
from typing import Self

_CHUNK_BYTES = 65_536
FAULT_AFTER_CHUNKS_MAX = 8
"""Pieces of answers that a connection forwards, at most, before a fault."""


class LossyProxy:
    """Listens on a free port of `host` and forwards to `target`, which may come and go."""

    def __init__(
        self,
        seed: int,
        *,
        fault_after_chunks_max: int = FAULT_AFTER_CHUNKS_MAX,
        host: str = "127.0.0.1",
        target: str = "127.0.0.1:0",
        is_lossy: bool = True,
    ) -> None:
        self.target = target
        self.is_lossy = is_lossy
        self.connections = 0
        """Number of those that were accepted."""
        self._host = host
        self.swallowed = self.cut = 0
        self._random = random.Random(seed)
        self._fault_after_chunks_max = fault_after_chunks_max
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._listening: Future[asyncio.Server] = Future()
        self._links: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._listening.result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def address(self) -> str:
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.create_task(self._listen())
        self._loop.run_forever()

    async def _listen(self) -> None:
        self._listening.set_result(await asyncio.start_server(self._accept, self._host, 0))

    async def _stop(self) -> None:
        self._server.close()
        for link in list(self._links):
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        self.connections += 1
        try:
            await self._link(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._links.discard(task)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards both directions, until one of them ends."""
        host, _, port = self.target.rpartition(":")
        broker_reader, broker_writer = await asyncio.open_connection(host, int(port))
        try:
            requests = asyncio.ensure_future(_copy(reader, broker_writer))
            answers = asyncio.ensure_future(self._answer(broker_reader, writer))
            _, pending = await asyncio.wait(
                {requests, answers}, return_when=asyncio.FIRST_COMPLETED
            )
            for task in pending:
                task.cancel()
            await asyncio.gather(requests, answers, return_exceptions=True)
        finally:
            broker_writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        chunks_left = self._random.randint(1, self._fault_after_chunks_max)
        swallows = self._random.random() < 0.5
        while data := await reader.read(_CHUNK_BYTES):
            chunks_left -= 1
            if chunks_left > 0 or not self.is_lossy:
                writer.write(data)
                await writer.drain()
            elif swallows:
                # The broker keeps answering for a while; no one receives it.
                self.swallowed += 1
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        while await reader.read(_CHUNK_BYTES):
                            pass
                return
            else:
                self.cut += 1
                writer.write(data[: self._random.randrange(len(data))])
                await writer.drain()
                return


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
