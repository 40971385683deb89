"""Quotas on the Kafka port: what is counted, and what a client that uses too much notices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from echoless.broker.handlers import session_requests
from tests.broker.handlers.test_fetch import fetch, wanted_partition
from tests.broker.quotas.quota_requests import Clock, alter
from tests.support.in_process import Running
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, create_topic
from tests.support.raw_produce import PartitionData
from tests.support.session_client import VERSION, ask, found, send

BATCH = plain_batch([b"x" * 100_000]).encode()
WINDOW_S = 10
PAUSE_MS = 300
LIMIT = len(BATCH) * 1000 // (WINDOW_S * 1000 + PAUSE_MS)
"""One batch is so much more than ten seconds' worth that it causes a pause of about `PAUSE_MS`."""


@pytest.fixture
async def topic(kafka: RawConnection) -> str:
    await create_topic(kafka, "t", 1)
    return "t"


def send_batch(kafka: RawConnection, version: int, acks: int = -1) -> None:
    kafka.send_produce(version, acks, [PartitionData("t", 0, BATCH)])


async def produced(kafka: RawConnection, version: int = 9, acks: int = -1) -> Any:
    """The answer to a produce request."""
    send_batch(kafka, version, acks)
    return await kafka.receive_response("produce", version)


def pause_ms(answer: Any) -> int:
    return round(answer.throttle_time.total_seconds() * 1000)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
async def test_a_producer_is_answered_at_once_and_then_not_read(
    kafka: RawConnection, topic: str, version: int
) -> None:
    """Vector 60: the batch is stored, the answer says for how long, the next request waits."""
    del topic
    assert await alter(kafka, {"producer_byte_rate": LIMIT}, user="ANONYMOUS") == 0
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    answer = await produced(kafka, version)
    (row,) = answer.responses[0].partition_responses
    assert (int(row.error_code), row.base_offset) == (0, 0)
    assert pause_ms(answer) == pytest.approx(PAUSE_MS, abs=10)
    await kafka.call("find_coordinator", 1, key="g", key_type=0)
    assert round(1000 * (loop.time() - began_at)) >= pause_ms(answer)


async def test_others_are_not_held_up(running: Running, kafka: RawConnection, topic: str) -> None:
    """Another connection of the same client is read, until it produces too."""
    del topic
    await alter(kafka, {"producer_byte_rate": 1}, user="ANONYMOUS")
    running.broker.quotas.clock = Clock()
    await produced(kafka)
    other = await RawConnection.open(running.kafka_address)
    await other.call("find_coordinator", 1, key="g", key_type=0)
    assert pause_ms(await produced(other)) > 2 * len(BATCH) * 900
    await other.close()
    assert running.broker.metrics.throttled_requests_total == 2


async def test_a_producer_without_acknowledgements_is_not_read_either(
    running: Running, kafka: RawConnection, topic: str
) -> None:
    """It gets no answer that could tell it."""
    del topic
    await alter(kafka, {"producer_byte_rate": LIMIT}, client_id="raw")
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    kafka.send_produce(9, 0, [PartitionData("t", 0, BATCH)])
    await kafka.call("find_coordinator", 1, key="g", key_type=0)
    assert loop.time() - began_at >= (PAUSE_MS - 10) / 1000
    assert running.broker.metrics.throttled_requests_total == 1


async def test_a_quota_that_was_removed_holds_no_longer(
    running: Running, kafka: RawConnection, topic: str
) -> None:
    """And then a request costs nothing more than without quotas."""
    del topic
    await alter(kafka, {"producer_byte_rate": LIMIT}, user=None, client_id=None)
    await produced(kafka)
    await alter(kafka, {"producer_byte_rate": None}, user=None, client_id=None)
    assert running.broker.quotas.limits is None
    assert pause_ms(await produced(kafka)) == 0


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_use_of_others_is_not_counted(kafka: RawConnection, topic: str, acks: int) -> None:
    """A quota of another user and of another client id."""
    del topic
    await alter(kafka, {"producer_byte_rate": 1}, user="bob")
    await alter(kafka, {"producer_byte_rate": 1}, client_id="other")
    assert pause_ms(await produced(kafka, acks=acks)) == 0


async def test_a_consumer_that_has_had_too_much_gets_nothing(
    running: Running, kafka: RawConnection, topic: str
) -> None:
    """Vector 61: the first fetch is answered and counted, the second empty, the one after the pause is not."""
    for _ in range(3):
        await produced(kafka)
    await alter(kafka, {"consumer_byte_rate": LIMIT}, client_id="raw")
    quotas, now = running.broker.quotas, [1000.0]
    quotas.clock = lambda: now[0]
    rows = {topic: [wanted_partition(0)]}
    first = await fetch(kafka, rows)
    assert pause_ms(first) == 0
    assert len(first.responses[0].partitions[0].records) == len(BATCH), "ten seconds' worth"
    second = await fetch(kafka, rows, max_wait_ms=60_000)
    assert second.responses == ()
    assert pause_ms(second) == pytest.approx(PAUSE_MS, abs=10)
    now[0] += 12
    third = await fetch(kafka, rows)
    assert len(third.responses[0].partitions[0].records) == len(BATCH)


async def test_a_session_loses_nothing_to_a_pause(
    running: Running, kafka: RawConnection, topic: str
) -> None:
    """The empty answer raises its epoch and notes the offsets; a request for a new one opens none."""
    for _ in range(3):
        await produced(kafka)
    await alter(kafka, {"consumer_byte_rate": LIMIT}, client_id="raw")
    quotas, now = running.broker.quotas, [1000.0]
    quotas.clock = lambda: now[0]
    response = await ask(kafka, (0, 0), {topic: [(0, 0)]})
    assert found(response) == {(topic, 0): (0, 1, 3, 0)}
    s = response.session_id
    for request, rows, answer in (
        ((s, 1), {topic: [(0, 1)]}, (0, s)),
        ((s, 1), {}, (71, 0)),
        ((s ^ 1, 1), {}, (70, 0)),
        ((0, 0), {topic: [(0, 0)]}, (0, 0)),
    ):
        response = await ask(kafka, request, rows, max_wait_ms=60_000)
        assert pause_ms(response) > 0
        assert (response.error_code, response.session_id) == answer
        assert response.responses == ()
    now[0] += 12
    assert found(await ask(kafka, (s, 2), {topic: [(0, 2)]})) == {(topic, 0): (0, 1, 3, 0)}
    assert (await ask(kafka, (s, -1))).error_code == 0
    assert len(running.broker.services.fetch.sessions) == 0


async def test_a_session_of_many_rows_is_noted_in_turns(
    running: Running, kafka: RawConnection, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are served in between, and the client's next request, sent meanwhile, finds all of it."""
    for _ in range(3):
        await produced(kafka)
    await create_topic(kafka, "many", 3)
    await alter(kafka, {"consumer_byte_rate": LIMIT}, client_id="raw")
    quotas, now = running.broker.quotas, [1000.0]
    quotas.clock = lambda: now[0]
    s = (await ask(kafka, (0, 0), {topic: [(0, 0)]})).session_id
    monkeypatch.setattr(session_requests, "ROWS_PER_TURN", 2)
    taken: list[bool] = []
    in_turns = session_requests.work_in_turns

    async def noted(steps: Iterator[object]) -> None:
        await asyncio.sleep(0)
        taken.append(True)
        await in_turns(steps)

    monkeypatch.setattr(session_requests, "work_in_turns", noted)
    rows = {"many": [(index, 0) for index in range(3)]}
    send(kafka, (s, 1), rows)
    send(kafka, (s, 2), forget={"many": [0]})
    first, second = [await kafka.receive_response("fetch", VERSION) for _ in range(2)]
    assert [one.session_id for one in (first, second)] == [s, s]
    assert [pause_ms(one) > 0 for one in (first, second)] == [True, True]
    assert taken == [True]
    (session,) = running.broker.services.fetch.sessions._by_id.values()
    assert len(session) == 3


async def test_request_time(running: Running, kafka: RawConnection) -> None:
    """Counted for every request, and the pause is never longer than a second."""
    await alter(kafka, {"request_percentage": 1e-9}, user=None)
    answer = await kafka.call("find_coordinator", 1, key="g", key_type=0)
    assert pause_ms(answer) == 1000
    assert running.broker.metrics.throttled_ms_total == 1000
