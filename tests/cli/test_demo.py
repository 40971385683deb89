"""`echoless demo`: what it counts, what its network loses, and the story as a whole."""

from __future__ import annotations

import asyncio
import struct

import pytest

from cli.demonstration.lossy_proxy import LossyProxy
from cli.demonstration.run import judge
from tests.cli.command import Command

_PRODUCE, _METADATA = 0, 3


def test_counts_duplicates_losses_and_disorder() -> None:
    """Twice stored, acknowledged but missing, and behind a greater one are three things."""
    outcome = judge(True, 8, {0, 1, 2, 3, 4}, {0: [0, 2, 2, 1, 0], 1: [3]}, 2)
    assert (outcome.sent, outcome.acknowledged, outcome.stored) == (8, 5, 6)
    assert (outcome.duplicates, outcome.lost, outcome.out_of_order) == (2, 1, 1)
    assert outcome.acknowledgements_lost == 2


async def test_network_loses_every_nth_acknowledgement() -> None:
    """Only answers to produce requests are swallowed, and the connection ends with them."""
    async with LossyProxy() as proxy:
        broker = await asyncio.start_server(_echo, "127.0.0.1", 0)
        proxy.broker_port = broker.sockets[0].getsockname()[1]
        proxy.lose_every = 2
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await _ask(reader, writer, _PRODUCE, 1) == 1
        assert await _ask(reader, writer, _METADATA, 2) == 2
        with pytest.raises(asyncio.IncompleteReadError):
            await _ask(reader, writer, _PRODUCE, 3)
        assert (proxy.acknowledgements, proxy.lost) == (2, 1)
        writer.close()
        broker.close()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A broker that answers every request with its correlation id and four bytes more."""
    while header := await reader.read(12):
        writer.write(struct.pack(">i", 8) + header[8:12] + b"body")
    writer.close()


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, api_key: int, correlation_id: int
) -> int:
    writer.write(struct.pack(">ihhi", 8, api_key, 0, correlation_id))
    answer = await reader.readexactly(12)
    found: int = struct.unpack_from(">i", answer, 4)[0]
    return found


@pytest.mark.slow
def test_story_holds(echoless: Command) -> None:
    """Without idempotence lost acknowledgements double records; with it nothing is doubled or lost."""
    ran = echoless("demo", "--records", 300, "--lose-every", 3, "--json")
    assert ran.code == 0
    without, with_ = ran.json
    assert without["duplicates"] > 0
    assert (with_["stored"], with_["duplicates"], with_["lost"]) == (300, 0, 0)
    assert with_["acknowledgements_lost"] > 0
