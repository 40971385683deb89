"""A shared read is one that began after everyone who gets it had asked."""

from __future__ import annotations

import asyncio

import pytest

from echoless.broker.replication.shared_reads import SharedReads


class Source:
    """A value that counts the reads of it."""

    def __init__(self) -> None:
        self.reads = 0
        self.answer = asyncio.Event()
        self.fails = False

    async def read(self, key: str) -> str:
        self.reads += 1
        seen = f"{key}{self.reads}"
        await self.answer.wait()
        if self.fails:
            raise OSError(seen)
        return seen


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_who_asks_during_a_read_shares_the_next() -> None:
    """A hundred at once are one read, a hundred during it another one: theirs is not older than their question."""
    source = Source()
    reads = SharedReads(source.read)
    first = [asyncio.create_task(reads.read("a")) for _ in range(100)]
    await turns()
    second = [asyncio.create_task(reads.read("a")) for _ in range(100)]
    await turns()
    assert source.reads == 1
    source.answer.set()
    assert {*await asyncio.gather(*first)} == {"a1"}
    assert {*await asyncio.gather(*second)} == {"a2"}
    assert await reads.read("a") == "a3"


async def test_keys_do_not_wait_for_each_other() -> None:
    """Each broker has an epoch of its own."""
    source = Source()
    reads = SharedReads(source.read)
    both = [asyncio.create_task(reads.read(key)) for key in "ab"]
    await turns()
    assert source.reads == 2
    source.answer.set()
    assert await asyncio.gather(*both) == ["a1", "b2"]


async def test_a_failure_is_everybodys_and_a_cancelled_one_nobodys() -> None:
    """Who gives up does not take the value from the others."""
    source = Source()
    source.fails = True
    reads = SharedReads(source.read)
    tasks = [asyncio.create_task(reads.read("a")) for _ in range(3)]
    await turns()
    tasks[0].cancel()
    source.answer.set()
    for task in tasks[1:]:
        with pytest.raises(OSError, match="a1"):
            await task
    source.fails = False
    assert await reads.read("a") == "a2"
