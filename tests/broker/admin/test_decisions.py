"""`/decisions`: looked up, and followed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from echoless.broker.admin import decisions as pages
from echoless.broker.decisions.stream import DecisionStream
from echoless.protocol.dedup import BatchMetadata, ProducerEntry
from tests.broker.admin.admin_client import AdminClient

_ENTRY = ProducerEntry(2, 0, 1234, (BatchMetadata(1, 11, 1, 99, 0xABC),))


@asynccontextmanager
async def _following(admin: AdminClient, query: str = "") -> AsyncIterator[aiohttp.StreamReader]:
    """The lines of a stream that the broker has begun."""
    async with admin.session.get(f"{admin.url}/decisions?follow=true{query}") as response:
        assert (response.status, response.content_type) == (200, "application/x-ndjson")
        yield response.content


async def _next(lines: aiohttp.StreamReader) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(await lines.readline())
    return document


async def test_decisions_say_who_what_and_why(admin: AdminClient) -> None:
    """A refusal can be looked up by its producer, with reason, window, client and connection."""
    admin.broker.partitions["orders", 0].log.producers.put(7, _ENTRY)
    admin.decider.refuse()
    status, body = await admin.get("/decisions?n=5&producer_id=7&topic=orders&partition=0")
    assert status == 200
    assert body["decisions"] == [
        {
            "number": 1,
            "time_ms": 1000,
            "topic": "orders",
            "partition": 0,
            "client_id": "billing",
            "address": "10.0.0.1:5000",
            "principal": "User:ANONYMOUS",
            "connection_id": 1,
            "correlation_id": 1,
            "producer_id": 7,
            "producer_epoch": 2,
            "base_sequence": 9,
            "last_sequence": 10,
            "decision": "reject",
            "base_offset": -1,
            "error": "OUT_OF_ORDER_SEQUENCE_NUMBER",
            "reason": "sequence 9 does not follow 1",
            "window": [[0, 1]],
        }
    ]
    nothing: dict[str, list[object]] = {"decisions": [], "faults": [], "transactions": []}
    assert (await admin.get("/decisions?producer_id=8"))[1] == nothing
    assert (await admin.get("/decisions?topic=orders&partition=1"))[1] == nothing


async def test_faults_are_listed_beside_the_decisions(admin: AdminClient) -> None:
    """A fault on a request is shown with its rule and its batches."""
    admin.decider.hit()
    _, body = await admin.get("/decisions")
    assert body["faults"] == [
        {
            "number": 1,
            "time_ms": 1000,
            "rule": "lose-acks",
            "action": "drop_response",
            "api": "produce",
            "connection_id": 1,
            "correlation_id": 1,
            "client_id": "billing",
            "address": "10.0.0.1:5000",
            "principal": "",
            "detail": "later=wait",
            "about": "",
            "batches": [
                {
                    "topic": "orders",
                    "partition": 0,
                    "producer_id": 7,
                    "producer_epoch": 2,
                    "base_sequence": 0,
                    "last_sequence": 1,
                }
            ],
        }
    ]


async def test_follower_gets_what_was_and_then_what_comes(admin: AdminClient) -> None:
    """The stream begins with the remembered events, oldest first, and continues without a gap."""
    admin.decider.append()
    admin.decider.hit()
    async with _following(admin) as lines:
        first, second = await _next(lines), await _next(lines)
        assert (first["event"], first["number"], first["broker_id"]) == ("decision", 1, 1)
        assert (second["event"], second["number"]) == ("fault", 2)
        admin.decider.refuse()
        third = await _next(lines)
        assert (third["event"], third["number"], third["decision"]) == ("decision", 3, "reject")


async def test_follower_may_ask_for_nothing_of_the_past(admin: AdminClient) -> None:
    """n=0 begins with the next event."""
    admin.decider.append()
    async with _following(admin, "&n=0") as lines:
        admin.decider.refuse()
        assert (await _next(lines))["number"] == 2


async def test_follower_of_a_producer_sees_no_other(admin: AdminClient) -> None:
    """The filters hold for the past and for what comes."""
    admin.decider.append(7)
    admin.decider.append(8)
    async with _following(admin, "&producer_id=8&topic=orders&partition=0") as lines:
        admin.decider.append(7)
        admin.decider.append(8, topic="bills")
        admin.decider.append(8)
        assert [(await _next(lines))["number"] for _ in range(2)] == [2, 5]


async def test_slow_follower_is_told_what_it_lost(
    admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events that found its queue full are counted in a separate line, in their place."""
    monkeypatch.setattr(
        pages, "DecisionStream", lambda chosen, **_: DecisionStream(chosen, capacity=2)
    )
    async with _following(admin) as lines:
        for _ in range(5):
            admin.decider.append()
        got = [await _next(lines) for _ in range(3)]
    assert [document["event"] for document in got] == ["decision", "decision", "lost"]
    assert got[2] == {"event": "lost", "broker_id": 1, "count": 3}


async def test_a_fence_is_behind_all_that_has_happened(admin: AdminClient) -> None:
    """Its reader gets it behind the events before it, wanted or not; nobody else does."""
    async with (
        _following(admin, "&n=0&name=mine&producer_id=7") as mine,
        _following(admin, "&n=0") as other,
    ):
        admin.decider.append(7)
        admin.decider.append(8)
        answers = [await admin.get("/decisions/fences/mine", "POST") for _ in range(2)]
        assert answers == [(200, {"fence": 1}), (200, {"fence": 2})]
        assert (await _next(mine))["number"] == 1
        reached = 0
        while reached < 2:
            fence = await _next(mine)
            assert (fence["event"], fence["broker_id"]) == ("fence", 1)
            reached = fence["fence"]
        admin.decider.append(7)
        assert (await _next(mine))["number"] == 3
        assert [(await _next(other))["number"] for _ in range(3)] == [1, 2, 3]


async def test_names_of_followers_are_their_own(admin: AdminClient) -> None:
    """A second reader of that name is refused, and so is a fence without one."""
    async with _following(admin, "&n=0&name=mine"):
        status, document = await admin.get("/decisions?follow=true&name=mine")
        assert (status, document) == (409, {"error": "mine: a reader follows under this name"})
        status, document = await admin.get("/decisions/fences/other", "POST")
        assert (status, document) == (
            404,
            {"error": "other: no reader follows under this name"},
        )
    status, document = await admin.get("/decisions?follow=true&name=")
    assert (status, document) == (400, {"error": "name: takes 1 to 100 characters"})


async def test_follower_that_goes_is_forgotten(admin: AdminClient) -> None:
    """Once no one follows, appends cost what they did before."""
    async with _following(admin, "&n=0"):
        assert admin.broker.decisions.is_followed
    while admin.broker.decisions.is_followed:  # noqa: ASYNC110 - the port tells nobody
        await asyncio.sleep(0.001)


async def test_stopping_broker_ends_the_stream(admin: AdminClient) -> None:
    """A follower gets what was decided, then the end: no stop waits for it."""
    async with _following(admin, "&n=0") as lines:
        admin.decider.append()
        stopping = asyncio.create_task(admin.stop())
        assert (await _next(lines))["number"] == 1
        assert await lines.readline() == b""
        await stopping


async def test_followers_are_bounded(admin: AdminClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may have a full queue in memory, so there are not many."""
    monkeypatch.setattr(pages, "FOLLOWERS_MAX", 1)
    async with _following(admin):
        answer = await admin.get("/decisions?follow=true")
    assert answer == (503, {"error": "1 readers follow already"})


async def test_followers_of_one_address_are_bounded(
    admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers elsewhere find a place, whatever one address does."""
    monkeypatch.setattr(pages, "FOLLOWERS_PER_ADDRESS_MAX", 1)
    async with _following(admin):
        answer = await admin.get("/decisions?follow=true")
    assert answer == (503, {"error": "1 readers of 127.0.0.1 follow already"})


@pytest.mark.parametrize("kind", ["", "&reader=console"])
async def test_the_address_that_follows_most_gives_way(
    admin: AdminClient, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """One that takes all places loses the newest to another address, and cannot take it back."""
    monkeypatch.setattr(pages, "FOLLOWERS_MAX", 3)
    monkeypatch.setattr(pages, "CONSOLES_MAX", 3)
    query = f"/decisions?follow=true&n=0{kind}"
    elsewhere = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
    async with contextlib.AsyncExitStack() as stack:
        first, _, newest = [
            await stack.enter_async_context(_following(admin, f"&n=0{kind}")) for _ in range(3)
        ]
        other = await stack.enter_async_context(aiohttp.ClientSession(connector=elsewhere))
        async with other.get(admin.url + query) as follower:
            assert follower.status == 200
            assert await newest.readline() == b""
            assert (await admin.get(query))[0] == 503
            async with other.get(admin.url + query) as second:
                assert second.status == 503
            admin.decider.append()
            assert (await _next(first))["number"] == (await _next(follower.content))["number"] == 1


async def test_a_choice_of_brokers_that_does_not_exist_is_refused(admin: AdminClient) -> None:
    """Before the stream begins: afterwards nothing but a broken connection could say so."""
    status, document = await admin.get("/decisions?follow=true&brokers=some")
    assert status == 400
    assert "brokers: takes one of own, all, not 'some'" in document["error"]
