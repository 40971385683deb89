"""The input of a copier, read from a broker in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path

from echoless.client.async_producer import AsyncProducer
from echoless.client.copier.reader import Reader
from echoless.client.security import NO_SECURITY
from tests.support.in_process import in_process


async def test_partitions_that_are_lost_as_soon_as_they_are_assigned(tmp_path: Path) -> None:
    """aiokafka's fetcher died if its subscription was gone when it woke up: nothing was read any more."""
    async with in_process(tmp_path) as running:
        async with AsyncProducer(running.kafka_address) as producer:
            await producer.send("in", b"one", partition=0)
        reader = Reader(running.kafka_address, NO_SECURITY, records_max=10)
        await reader.start()
        await asyncio.sleep(0)  # the fetcher waits for partitions
        reader.assign({("in", 0): 0})
        reader.assign({})
        for _ in range(10):
            await asyncio.sleep(0)  # now it wakes up
        reader.assign({("in", 0): 0})
        async with asyncio.timeout(20):
            while not (found := await reader.read()):
                pass
        assert [record.value for record in found["in", 0]] == [b"one"]
        reader.assign({})
        assert await reader.read() == {}
        await reader.close()
