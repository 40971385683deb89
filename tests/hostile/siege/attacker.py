"""An attacker, and the common part of most: attempts from several addresses until the end."""

from __future__ import annotations

import asyncio
import random
import struct
import time
from abc import abstractmethod
from collections import Counter
from typing import ClassVar, NamedTuple, Protocol, Self

from tests.support.raw_client import ConnectionEndedError, RawConnection

ATTEMPT_TIMEOUT_S = 10.0
_SOURCES = 8
_CLIENT_ID = b"attacker"


class Target(NamedTuple):
    """The broker's addresses."""

    kafka: str
    native: str
    admin: str


class Attacker(Protocol):
    """One thing that a hostile client does."""

    name: ClassVar[str]
    does: ClassVar[str]
    """Its attempts, for the table in docs/hostile.md."""
    tries: Counter[str]
    """Attempts by what became of them."""

    def prepare(self) -> None:
        """Makes what takes long to make, before the clock starts."""
        ...

    async def run(self, target: Target, rng: random.Random, until: float) -> None:
        """Attacks until the moment (monotonic); raises nothing."""
        ...


class Line(RawConnection):
    """A connection from one of several loopback addresses, none of them the good client's."""

    @classmethod
    async def open(cls, address: str) -> Self:
        host, _, port = address.rpartition(":")
        source = f"127.0.0.{random.randrange(2, 2 + _SOURCES)}"
        reader, writer = await asyncio.open_connection(
            host, int(port), limit=2**20, local_addr=(source, 0)
        )
        return cls(reader, writer)

    def send_bytes(self, data: bytes) -> None:
        """Writes anything, unless the broker has ended the connection. Raises `ConnectionError`."""
        if self._writer.transport.is_closing():
            raise ConnectionResetError
        super().send_bytes(data)

    def abort(self) -> None:
        """Ends the connection with a reset."""
        self._writer.transport.abort()

    def finish_sending(self) -> None:
        """Half-closes: the end of the requests, while answers may still come."""
        self._writer.write_eof()

    async def wait_closed_by_broker(self) -> None:
        """Reads to the end."""
        while await self._reader.read(65536):
            pass

    async def read_some(self) -> bytes:
        return await self._reader.read(65536)

    async def read_frame(self) -> bytes:
        """One frame after its length: answers of the native port."""
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    async def drain(self) -> None:
        await self._writer.drain()


def claim(size: int) -> bytes:
    """The length of a frame."""
    return struct.pack(">i", size)


class Repeated:
    """An attacker that makes one attempt after the other, `lanes` of them side by side."""

    name: ClassVar[str]
    does: ClassVar[str]
    lanes: ClassVar[int] = 1
    pause_s: ClassVar[float] = 0.02
    """Mean time between the attempts of one lane: the attackers share the machine with the broker."""

    def __init__(self) -> None:
        self.tries: Counter[str] = Counter()

    def prepare(self) -> None:
        """See `Attacker.prepare`."""

    async def run(self, target: Target, rng: random.Random, until: float) -> None:
        """See `Attacker.run`."""
        await asyncio.gather(
            *(self._lane(target, random.Random(rng.random()), until) for _ in range(self.lanes))
        )

    async def _lane(self, target: Target, rng: random.Random, until: float) -> None:
        while time.monotonic() < until:
            self.tries[await self._outcome(target, rng, until)] += 1
            await asyncio.sleep(min(rng.expovariate(1 / self.pause_s), 1.0))

    async def _outcome(self, target: Target, rng: random.Random, until: float) -> str:
        try:
            async with asyncio.timeout(min(ATTEMPT_TIMEOUT_S, max(0.1, until - time.monotonic()))):
                return await self.attempt(target, rng)
        except (ConnectionEndedError, ConnectionError, EOFError):
            return "connection ended"
        except TimeoutError:
            return "no answer"
        except OSError as error:
            return f"not connected ({error.strerror})"

    @abstractmethod
    async def attempt(self, target: Target, rng: random.Random) -> str:
        """One attempt; what became of it."""


class OnOneLine(Repeated):
    """Attempts of up to eleven requests, one after the other on one connection."""

    port: ClassVar[str] = "kafka"

    async def attempt(self, target: Target, rng: random.Random) -> str:
        """See `Repeated.attempt`."""
        line = await Line.open(getattr(target, self.port))
        try:
            for _ in range(rng.randint(1, 10)):
                self.tries[await self.ask(line, rng)] += 1
            return await self.ask(line, rng)
        finally:
            line.abort()

    @abstractmethod
    async def ask(self, line: Line, rng: random.Random) -> str:
        """One request on the connection; what became of it."""
