"""Transactions as readers on the native port see them."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

import pytest

from echoless.broker.native import fetch as fetch_module
from echoless.protocol.control_records import MarkerType
from echoless.protocol.data_batches import data_batches
from echoless.protocol.errors import ErrorCode
from echoless.protocol.records import read_records
from tests.support.in_process import Running
from tests.support.native_client import NativeConnection
from tests.support.raw_client import RawConnection, create_topic
from tests.support.transactions_by_hand import HandMadeTransactions

LONG_MS: Final = 20_000


@pytest.fixture
async def hand(running: Running, kafka: RawConnection) -> HandMadeTransactions:
    """The transactions of a topic of one partition."""
    await create_topic(kafka, "t", 1)
    return HandMadeTransactions(running.broker.partitions["t", 0])


async def fetch(native: NativeConnection, offset: int, **fields: Any) -> dict[str, Any]:
    fields = {"max_wait_ms": 0, **fields}
    return await native.call("fetch", topic="t", partition=0, offset=offset, **fields)


def values(answer: dict[str, Any]) -> list[bytes]:
    return [record["value"] for record in answer["records"]]


async def test_both_levels(native: NativeConnection, hand: HandMadeTransactions) -> None:
    """All records or those that were committed; markers are shown to no one, and passed."""
    hand.write(1, b"a", b"b")
    hand.write(2, b"bad")
    hand.end(2, MarkerType.ABORT)
    hand.end(1, MarkerType.COMMIT)
    hand.write(3, b"open")
    everything = await fetch(native, 0)
    assert values(everything) == [b"a", b"b", b"bad", b"open"]
    assert (everything["high_watermark"], everything["last_stable_offset"]) == (6, 5)
    assert everything["next_offset"] == 6
    committed = await fetch(native, 0, isolation="read_committed")
    assert (values(committed), committed["next_offset"]) == ([b"a", b"b"], 5)
    raw = await fetch(native, 0, isolation="read_committed", raw=True)
    assert (raw["aborted"], raw["next_offset"]) == ([[2, 2]], 5)
    assert "aborted" not in await fetch(native, 0, raw=True)
    nothing = await fetch(native, 5, isolation="read_committed")
    assert (values(nothing), nothing["next_offset"]) == ([], 5)


async def test_an_unknown_level(native: NativeConnection) -> None:
    """It is refused, with those that there are."""
    error = (await fetch(native, 0, isolation="serializable"))["error"]
    assert error["code"] == ErrorCode.INVALID_REQUEST
    expected = "fetch: isolation takes read_uncommitted or read_committed, not 'serializable'"
    assert error["message"] == expected


async def test_a_wait_ends_with_the_transaction(
    native: NativeConnection, hand: HandMadeTransactions
) -> None:
    """Not with its records."""
    hand.write(1, b"a")
    wanted = {"max_wait_ms": LONG_MS, "isolation": "read_committed"}
    answer = asyncio.create_task(fetch(native, 0, **wanted))
    while not hand.partition.waiters.data:  # noqa: ASYNC110 - until the broker waits
        await asyncio.sleep(0)
    hand.write(1, b"b")
    while not hand.partition.waiters.data:  # noqa: ASYNC110 - until it has looked, and waits again
        await asyncio.sleep(0)
    assert not answer.done()
    hand.end(1, MarkerType.COMMIT)
    async with asyncio.timeout(LONG_MS / 2000):
        assert values(await answer) == [b"a", b"b"]


@pytest.mark.parametrize("records_max", [1, 10_000])
async def test_any_history_read_by_parts(
    native: NativeConnection,
    hand: HandMadeTransactions,
    monkeypatch: pytest.MonkeyPatch,
    records_max: int,
) -> None:
    """Each committed record once, in order, decoded by the broker or here, from any offset on."""
    monkeypatch.setattr(fetch_module, "RECORDS_MAX", records_max)
    rng = random.Random(11)
    running: dict[int, list[tuple[int, bytes]]] = {}
    committed: list[tuple[int, bytes]] = []
    for turn in range(150):
        producer_id = rng.randrange(4)
        if rng.random() < 0.6:
            written = [f"{turn}-{n}".encode() for n in range(rng.randrange(1, 4))]
            first = hand.write(producer_id, *written)
            running.setdefault(producer_id, []).extend(enumerate(written, first))
        elif producer_id in running:
            ended = running.pop(producer_id)
            kind = rng.choice([MarkerType.COMMIT, MarkerType.ABORT])
            hand.end(producer_id, kind)
            if kind is MarkerType.COMMIT:
                committed += ended
    committed.sort()
    stable = hand.partition.last_stable_offset
    for begin in (0, 1, stable // 2, stable - 1):
        for raw in (False, True):
            found: list[tuple[int, bytes]] = []
            offset = begin
            while offset < stable:
                limit = rng.choice([1, 300, 5000])
                answer = await fetch(
                    native, offset, isolation="read_committed", bytes_max=limit, raw=raw
                )
                found += decoded(answer) if raw else shown(answer)
                assert answer["next_offset"] > offset
                offset = answer["next_offset"]
            assert [one for one in found if one[0] >= begin] == [
                one for one in committed if begin <= one[0] < stable
            ]


def shown(answer: dict[str, Any]) -> list[tuple[int, bytes]]:
    return [(record["offset"], record["value"]) for record in answer["records"]]


def decoded(answer: dict[str, Any]) -> list[tuple[int, bytes]]:
    view = memoryview(answer["batches"])
    aborted = [(producer_id, first) for producer_id, first in answer["aborted"]]
    return [
        (record.offset, record.value or b"")
        for position, header in data_batches(view, aborted)
        for record in read_records(view[position : position + header.size])
    ]
