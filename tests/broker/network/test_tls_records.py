"""Records of TLS on their way to OpenSSL: how many at a time, and whose turn it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.network import tls_records as module
from echoless.broker.network.tls_records import RECORDS_PER_STEP, TlsRecords, stand_before_openssl

HEADER = 5
TINY = b"\x17\x03\x03\x00\x16" + bytes(22)
"""A record as long as a KeyUpdate's."""


def record(size: int) -> bytes:
    return b"\x17\x03\x03" + size.to_bytes(2) + bytes(size)


class Transport:
    """A TCP transport without a socket."""

    def __init__(self, inner: OpenSsl) -> None:
        self.protocol: Any = inner
        self._reads = True
        self.is_closed = False
        inner.transport = self

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def is_reading(self) -> bool:
        return self._reads

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    async def receive(self, data: bytes) -> None:
        """Gives the protocol what arrives, while it is read."""
        while data:
            async with asyncio.timeout(60):
                while not self._reads:  # noqa: ASYNC110 - an event would be another way to resume
                    await asyncio.sleep(0)
            buffer = self.protocol.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.protocol.buffer_updated(size)
            data = data[size:]


class OpenSsl:
    """The loop's protocol: keeps the steps; has its reader pause for some of them, if it is so slow."""

    transport: Transport

    def __init__(self, order: list[str] | None = None, name: str = "", pauses: int = 0) -> None:
        self.steps: list[bytes] = []
        self.is_at_end = False
        self._buffer = bytearray()
        self._order = [] if order is None else order
        self._name = name
        self._pauses = pauses

    def get_buffer(self, sizehint: int) -> memoryview:
        self._buffer = bytearray(sizehint)
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        assert not self.is_at_end
        self.steps.append(bytes(self._buffer[:nbytes]))
        self._order.append(self._name)
        if self._pauses:
            self._pauses -= 1
            self.transport.pause_reading()
            asyncio.get_running_loop().call_soon(self.transport.resume_reading)

    def eof_received(self) -> bool:
        self.is_at_end = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_at_end = True


def records_begun(steps: list[bytes]) -> list[int]:
    """The records that begin in each step."""
    found, position = [], 0
    for step in steps:
        count = 0
        while position + HEADER <= len(step):
            position += HEADER + int.from_bytes(step[position + 3 : position + HEADER])
            count += 1
        assert position >= len(step), "a header is cut"
        position -= len(step)
        found.append(count)
    return found


def connection(inner: OpenSsl, host: str = "127.0.0.1", early: bytes = b"") -> TlsRecords:
    transport: Any = Transport(inner)
    return stand_before_openssl(transport, host, early)


async def idle(records: TlsRecords) -> None:
    """Waits until the connection has no further step."""
    async with asyncio.timeout(60):
        while records._waits or len(records._held) >= HEADER:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0)


sizes = st.lists(st.one_of(st.just(22), st.integers(0, 40), st.integers(0, 20_000)), max_size=150)


@given(sizes, st.lists(st.integers(1, 5_000), min_size=1, max_size=20), st.integers(0, 3))
def test_openssl_gets_every_byte_in_order_and_few_records_at_a_time(
    sizes: list[int], cuts: list[int], pauses: int
) -> None:
    """However the network cuts them, and whatever the reader's pauses; one at a time before the handshake is over."""
    sent = b"".join(map(record, sizes))

    async def run() -> None:
        inner = OpenSsl(pauses=pauses)
        early, rest = sent[: cuts[0]], sent[cuts[0] :]
        records = connection(inner, early=early)
        await idle(records)
        assert max(records_begun(inner.steps), default=0) <= 1
        records.open()
        number = 0
        while rest:
            cut = cuts[number % len(cuts)]
            await inner.transport.receive(rest[:cut])
            rest, number = rest[cut:], number + 1
        await idle(records)
        await asyncio.sleep(0)
        assert b"".join(inner.steps) == sent
        assert max(records_begun(inner.steps), default=0) <= RECORDS_PER_STEP
        assert inner.transport.is_reading()
        records.eof_received()
        assert inner.is_at_end

    asyncio.run(run())


async def test_large_records_are_passed_on_at_once() -> None:
    """A produce request waits for nobody's turn."""
    inner = OpenSsl()
    records = connection(inner)
    records.open()
    data = record(16_384) * 10 + record(100)
    await inner.transport.receive(data)
    assert inner.steps == [data]
    assert inner.transport.is_reading()


async def test_many_small_records_wait_for_their_turns() -> None:
    """Nothing more is read of them until they have been passed on; the end of the stream comes last."""
    inner = OpenSsl()
    records = connection(inner)
    records.open()
    data = TINY * 1_000
    await inner.transport.receive(data)
    assert inner.steps == []
    assert not inner.transport.is_reading()
    assert records.eof_received()
    await idle(records)
    assert b"".join(inner.steps) == data
    assert len(inner.steps) >= 1_000 // RECORDS_PER_STEP
    assert inner.is_at_end
    assert inner.transport.is_closed


async def test_addresses_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with a hundred handshakes delays that of another by one step."""
    monkeypatch.setattr(module, "TURN_S", 0.0)
    order: list[str] = []
    for _ in range(100):
        connection(OpenSsl(order, "many"), "127.0.0.2", early=TINY)
    other = OpenSsl(order, "other")
    connection(other, "127.0.0.3", early=TINY)
    async with asyncio.timeout(60):
        while not other.steps:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0)
    assert order.count("many") <= 2


async def test_a_connection_that_is_lost_has_no_further_step() -> None:
    inner = OpenSsl()
    records = connection(inner, early=TINY * 3)
    await asyncio.sleep(0)
    records.connection_lost(None)
    for _ in range(10):
        await asyncio.sleep(0)
    assert inner.steps == []


async def test_a_step_that_raises_costs_no_other_connection_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor those that wait later."""
    broken, other = OpenSsl(), OpenSsl()
    raised: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))

    def fail(nbytes: int) -> None:
        raise ValueError(nbytes)

    monkeypatch.setattr(broken, "buffer_updated", fail)
    connection(broken, early=TINY)
    await idle(connection(other, "127.0.0.2", early=TINY))
    assert len(raised) == 1
    last = OpenSsl()
    await idle(connection(last, early=TINY))
    assert other.steps == last.steps == [TINY]
