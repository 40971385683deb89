"""Batches that expand a thousandfold, against a real broker whose good client continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import Codec
from tests.hostile.bombs import CODECS, empty_records, many_headers, tiny_records, zeros
from tests.hostile.target import assert_quiet_log
from tests.support.echoless import Echoless
from tests.support.native_client import NativeConnection

Bomb = Callable[[], bytes]
REFUSED: dict[str, Bomb] = {
    "claims 100 million records": lambda: empty_records(Codec.ZSTD, 100_000, claimed=100_000_000),
    **{
        f"a million empty records, {codec.name}": _bomb
        for codec in CODECS
        for _bomb in [lambda codec=codec: empty_records(codec)]
    },
    "expands beyond 100 MiB": lambda: zeros(120_000_000, Codec.ZSTD),
}
HONEST: dict[str, Bomb] = {
    "a million records, zstd": lambda: tiny_records(1_000_000, Codec.ZSTD),
    "a million records, gzip": lambda: tiny_records(1_000_000, Codec.GZIP),
    "149,000 records as they are": lambda: tiny_records(149_000, Codec.NONE),
    "400,000 headers": lambda: many_headers(400_000, Codec.ZSTD),
}
SERVED_MEANWHILE = 3
"""Good batches that are stored while one honest bomb is opened, at least."""


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[Echoless]:
    broker = Echoless(tmp_path)
    broker.start()
    client = await NativeConnection.open(broker.native_address)
    configs = {"max.message.bytes": "10000000"}
    for topic in ("good", "bad"):
        await client.call("create_topic", topic=topic, partitions=1, configs=configs)
    await client.close()
    yield broker
    assert broker.terminate() == 0
    assert_quiet_log(broker)


async def beside(broker: Echoless, **message: Any) -> tuple[dict[str, Any], int]:
    """The answer to a message, and how many good batches were stored before it came."""
    hostile = await NativeConnection.open(broker.native_address)
    good = await NativeConnection.open(broker.native_address)
    hostile.send(**message)
    answer = asyncio.ensure_future(hostile.receive())
    served = 0
    while not answer.done():
        stored = await good.call("produce", topic="good", partition=0, records=[{"value": b"x"}])
        assert stored["error"]["code"] == 0
        served += not answer.done()
    await hostile.close()
    await good.close()
    return await answer, served


@pytest.mark.slow
async def test_dishonest_batches_are_refused(target: Echoless):
    """87 for each, and nothing of them is stored."""
    for name, bomb in REFUSED.items():
        answer, _ = await beside(target, type="produce", topic="bad", partition=0, batch=bomb())
        assert answer["error"]["code"] == ErrorCode.INVALID_RECORD, name
    answer, _ = await beside(
        target, type="fetch", topic="bad", partition=0, offset=0, max_wait_ms=0
    )
    assert (answer["high_watermark"], answer["records"]) == (0, [])


@pytest.mark.slow
async def test_honest_batches_of_many_records_hold_up_no_one(target: Echoless):
    """They are stored, and so is what others send meanwhile; reading them back holds up no one."""
    expected = 0
    for name, bomb in HONEST.items():
        batch = bomb()
        answer, served = await beside(target, type="produce", topic="bad", partition=0, batch=batch)
        assert (answer["error"]["code"], answer["base_offset"]) == (0, expected), name
        assert served >= SERVED_MEANWHILE, name
        read, served = await beside(
            target, type="fetch", topic="bad", partition=0, offset=expected, max_wait_ms=0
        )
        assert read["error"]["code"] == 0, name
        assert read["records"][0]["offset"] == expected
        assert read["next_offset"] == expected + len(read["records"])
        expected = answer["base_offset"] + int.from_bytes(batch[57:61], "big")


@pytest.mark.slow
async def test_many_records_of_a_native_message_hold_up_no_one(target: Echoless):
    """They are built into a batch beside the loop; what comes next on the connection waits."""
    records = [{"value": b"x", "headers": [["", None]] * 5000}] * 60
    message = {"type": "produce", "topic": "bad", "partition": 0, "records": records}
    answer, served = await beside(target, **message)
    assert (answer["error"]["code"], answer["base_offset"]) == (0, 0)
    assert served >= SERVED_MEANWHILE
