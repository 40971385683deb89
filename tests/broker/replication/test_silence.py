"""How long a peer may take over an answer: measured by its silence, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import msgpack
import pytest

from echoless.broker.config.loading import Address
from echoless.broker.replication.name_lookups import NameLookups
from echoless.broker.replication.peer_connection import PeerConnection, PeerError
from tests.simulation.virtual_loop import VirtualLoop
from tests.support.scripted_peer import answer

SILENCE_MAX_S = 3.0
_LENGTH_BYTES = 4


class SlowLink(asyncio.Transport):
    """Answers every message at once, in pieces that are `gap_s` apart."""

    def __init__(self, gap_s: float, pieces: int) -> None:
        super().__init__()
        self._gap_s = gap_s
        self._pieces = pieces
        self._protocol: PeerConnection | None = None

    async def connect(self, make: Callable[[], PeerConnection], *_: object, **_tls: object) -> None:
        self._protocol = make()
        self._protocol.connection_made(self)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        message = msgpack.unpackb(b"".join(list_of_data)[_LENGTH_BYTES:])
        is_hello = message["type"] == "hello"
        data = answer(message)
        size = -(-len(data) // (1 if is_hello else self._pieces))
        for number, start in enumerate(range(0, len(data), size), 1):
            delay_s = 0.0 if is_hello else number * self._gap_s
            loop = asyncio.get_running_loop()
            loop.call_later(delay_s, self._arrive, data[start : start + size])

    def _arrive(self, data: bytes) -> None:
        protocol = self._protocol
        assert protocol is not None
        if not protocol.is_closed:
            protocol.get_buffer(-1)[: len(data)] = data
            protocol.buffer_updated(len(data))

    def abort(self) -> None: ...


def call_over(link: SlowLink) -> dict[str, Any]:
    """The answer to one call."""

    async def call() -> dict[str, Any]:
        connection = PeerConnection(
            1, Address("192.0.2.1", 1), answer_size_max=1000, lookups=NameLookups()
        )
        return await connection.call({"type": "replica_fetch"}, SILENCE_MAX_S)

    with VirtualLoop(Random(1), lambda *_: None) as loop:
        loop.create_connection = link.connect  # type: ignore[method-assign, assignment]
        task = loop.create_task(call())
        assert loop.run_until(loop.time() + 60, task.done)
    return task.result()


def test_a_slow_answer_may_take_its_time() -> None:
    """Ten pieces, each within the time that one may be silent, are no reason to give up."""
    assert call_over(SlowLink(gap_s=2.5, pieces=10))["type"] == "replica_fetch"


def test_silence_in_the_middle_of_an_answer_ends_the_connection() -> None:
    """A link that died is not waited for, however much of the answer has come."""
    with pytest.raises(PeerError, match="within 3 s"):
        call_over(SlowLink(gap_s=3.5, pieces=2))
